"""Every node: that nobody beside the fleet's people has an account, or becomes root.

What a machine has by itself: root, on a site the account by which it is first configured, in the cloud that of Session
Manager, and accounts of daemons, which nobody can be. Others that its image came with are shut.
"""

from testinfra.host import Host

from bedplate.nodes.deployer import FIRST
from bedplate.plan.node import Ground, NodePlan
from roles.hardened.sshd import IMAGE_ACCOUNTS
from tests.compliance.accounts import entries, strangers, strays

# Made by AWS's agent at the first session. Source: Systems Manager user guide, "Turn off ssm-user account permissions".
_SESSIONS = "ssm-user"
_MAY_SUDO = """cut -d: -f1 /etc/passwd | while read -r name; do
LC_ALL=C sudo --list --other-user="$name" </dev/null 2>/dev/null | grep -q 'may run the following' && echo "$name"
done; true"""
_UNPACKAGED = """find /etc/polkit-1 /run/polkit-1 /usr/local/share/polkit-1 /usr/share/polkit-1 ! -type d 2>/dev/null |
while read -r file; do
dpkg -S "$file" >/dev/null 2>&1 || echo "$file"; done"""


def test_nobody_else_has_an_account(host: Host, node: NodePlan) -> None:
    """Whoever is not of the fleet and has a shell, the number of a person or of root, is a stranger."""
    known = {*node.accounts.uids, *node.accounts.departed, *_own(node), *_shut(host)}
    found = strangers(entries(host, "/etc/passwd"), known)

    assert not found, f"nobody of the fleet, and no daemon: {', '.join(found)}"


def test_tables_of_accounts_hold_accounts_alone(host: Host) -> None:
    """A line that is nobody's may ask another list, and let in whoever is there."""
    found = [table for table in ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow") if strays(host, table)]

    assert not found, f"lines that are blank, or begin with + or -: {', '.join(found)}"


def test_accounts_of_the_image_are_shut(host: Host, node: NodePlan) -> None:
    """Beside the first of a site nobody comes in, or becomes anybody, by an account that the machine came with."""
    there = {name for name, *_ in entries(host, "/etc/passwd")} & {*IMAGE_ACCOUNTS} - _own(node)
    keyed = {name for name in there if host.run("test -e ~%s/.ssh/authorized_keys", name).succeeded}
    grouped = {name for name in there if len(host.check_output("id --groups %s", name).split()) > 1}

    found = sorted(keyed | grouped | there - _shut(host))
    assert not found, f"apply as an administrator by name, which shuts {', '.join(found)}"


def test_nobody_else_has_a_password(host: Host, node: NodePlan) -> None:
    """No daemon has one, and no group: whoever knew it would be the daemon, or in the group."""
    known = {*node.accounts.uids, *node.accounts.departed, *_own(node)}
    locks = {name: lock[:1] for name, lock, *_ in entries(host, "/etc/shadow") if name not in known}
    groups = {name: lock[:1] for name, lock, *_ in entries(host, "/etc/gshadow")}

    assert [name for name, lock in locks.items() if lock not in {"*", "!"}] == []
    assert [name for name, lock in groups.items() if lock not in {"*", "!", ""}] == []


def test_root_has_no_password(host: Host) -> None:
    """Whoever knew it would be root at a console, and nothing would tell who it was."""
    (lock,) = (lock[:1] for name, lock, *_ in entries(host, "/etc/shadow") if name == "root")
    assert lock in {"*", "!"}, "root has a password, or none is asked for"


def test_administrators_alone_become_root(host: Host, node: NodePlan) -> None:
    """By sudo, whatever file somebody put in its folder, and whosever account it names."""
    told = {*host.check_output(_MAY_SUDO).split()}

    assert told - _own(node) == {each.name for each in node.accounts.people if each.admin}


def test_polkit_asks_no_rule_of_somebodys_own(host: Host) -> None:
    """A rule of polkit makes anybody root without a word to sudo: those of packages alone are there."""
    assert host.check_output(_UNPACKAGED) == ""


def _own(node: NodePlan) -> set[str]:
    """Return the accounts that the machine has by itself and that somebody can be."""
    return {"root", _SESSIONS if node.ground is Ground.CLOUD else FIRST}


def _shut(host: Host) -> set[str]:
    """Return the accounts of its image that have no shell, no password, and an end that is past."""
    shells = {name: shell for name, *_, shell in entries(host, "/etc/passwd")}
    locks = {name: (lock[:1], ends) for name, lock, *_, ends, _ in entries(host, "/etc/shadow")}
    return {
        name
        for name in IMAGE_ACCOUNTS
        if shells.get(name) == "/usr/sbin/nologin" and locks.get(name) in {("*", "1"), ("!", "1")}
    }
