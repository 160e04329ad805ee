"""Every node: that nobody beside the fleet's people has an account, or becomes root.

What a machine has by itself: root, the account by which its image is first configured, in the cloud that of Session
Manager, and accounts of daemons, which nobody can be.
"""

from testinfra.host import Host

from bedplate.plan.node import Ground, NodePlan
from roles.hardened.sshd import IMAGE_ACCOUNTS
from tests.compliance.accounts import entries, strangers

# Made by AWS's agent at the first session. Source: Systems Manager user guide, "Turn off ssm-user account permissions".
_SESSIONS = "ssm-user"
_MAY_SUDO = """cut -d: -f1 /etc/passwd | while read -r name; do
LC_ALL=C sudo --list --other-user="$name" </dev/null 2>/dev/null | grep -q 'may run the following' && echo "$name"
done; true"""
_UNPACKAGED = """find /etc/polkit-1 /usr/local/share/polkit-1 /run/polkit-1 -type f 2>/dev/null | while read -r file; do
dpkg -S "$file" >/dev/null 2>&1 || echo "$file"; done"""


def test_nobody_else_has_an_account(host: Host, node: NodePlan) -> None:
    """Whoever is not of the fleet and has a shell, the number of a person or of root, is a stranger."""
    known = {*node.accounts.uids, *node.accounts.departed, *_own(node)}
    found = strangers(entries(host, "/etc/passwd"), known)

    assert not found, f"nobody of the fleet, and no daemon: {', '.join(found)}"


def test_nobody_else_has_a_password(host: Host, node: NodePlan) -> None:
    """No daemon has one, and no group: whoever knew it would be the daemon, or in the group."""
    known = {*node.accounts.uids, *node.accounts.departed, *_own(node)}
    locks = {name: lock[:1] for name, lock, *_ in entries(host, "/etc/shadow") if name not in known}
    groups = {name: lock[:1] for name, lock, *_ in entries(host, "/etc/gshadow")}

    assert [name for name, lock in locks.items() if lock not in {"*", "!"}] == []
    assert [name for name, lock in groups.items() if lock not in {"*", "!", ""}] == []


def test_administrators_alone_become_root(host: Host, node: NodePlan) -> None:
    """By sudo, whatever file somebody put in its folder, and whosever account it names."""
    told = {*host.check_output(_MAY_SUDO).split()}

    assert told - _own(node) == {each.name for each in node.accounts.people if each.admin}


def test_polkit_asks_no_rule_of_somebodys_own(host: Host) -> None:
    """A rule of polkit makes anybody root without a word to sudo: those of packages alone are there."""
    assert host.check_output(_UNPACKAGED) == ""


def _own(node: NodePlan) -> set[str]:
    """Return the accounts that the machine has by itself and that somebody can be."""
    return {"root", *IMAGE_ACCOUNTS, *((_SESSIONS,) if node.ground is Ground.CLOUD else ())}
