"""Rules for every node: accounts, groups, keys and sudo rules match the fleet file.

The system may have root, accounts of daemons, and one login account: on a site the first account, which configures the
machine, in the cloud the account of Session Manager. Other accounts of the image are disabled.
"""

from testinfra.host import Host

from bedplate.compliance.settings import account_entries, applies_if, stray_lines, unknown_accounts
from bedplate.nodes.ssh import INITIAL_ACCOUNT
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS, Access
from bedplate.plan.nodes import NodePlan, NodeRole, Platform
from roles.hardened.logins import IMAGE_ACCOUNTS
from roles.people.accounts import NO_SHELL, TOKEN_HOME, TOKEN_SHELL

# The SSM agent creates it. Source: Systems Manager user guide, "Turn off ssm-user account permissions".
_SESSION_MANAGER = "ssm-user"
_MAY_SUDO = """cut -d: -f1 /etc/passwd | while read -r name; do
LC_ALL=C sudo --list --other-user="$name" </dev/null 2>/dev/null | grep -q 'may run the following' && echo "$name"
done; true"""
_UNPACKAGED_RULES = """\
find /etc/polkit-1 /run/polkit-1 /usr/local/share/polkit-1 /usr/share/polkit-1 ! -type d 2>/dev/null |
while read -r file; do
dpkg -S "$file" >/dev/null 2>&1 || echo "$file"; done
dpkg -S /etc/polkit-1 /usr/share/polkit-1 2>/dev/null | sed 's/: .*//; s/, /\\n/g' | sort -u | xargs -r dpkg --verify |
grep -o '/.*polkit-1/.*'; true"""


def test_no_unknown_accounts(host: Host, node: NodePlan) -> None:
    """Every account with a shell, a person's ID or root's ID belongs to the fleet file or to the system."""
    account_names = {*node.accounts.uids, *node.accounts.departed, *_system_logins(node), *_disabled(host)}
    unknown = unknown_accounts(account_entries(host, "/etc/passwd"), account_names)

    assert not unknown, f"neither in the fleet file nor daemons: {', '.join(unknown)}"


def test_account_files_have_no_stray_lines(host: Host) -> None:
    """Account files have no blank lines, and none with + or -, which would include other lists of accounts."""
    files = [file for file in ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow") if stray_lines(host, file)]

    assert not files, f"blank lines, or lines with + or -: {', '.join(files)}"


def test_image_accounts_are_disabled(host: Host, node: NodePlan) -> None:
    """Accounts of the image cannot log in or use other privileges, except the first account of a site."""
    accounts = {name for name, *_ in account_entries(host, "/etc/passwd")} & {*IMAGE_ACCOUNTS} - _system_logins(node)
    with_keys = {name for name in accounts if host.run("test -e ~%s/.ssh/authorized_keys", name).succeeded}
    with_groups = {name for name in accounts if len(host.check_output("id --groups %s", name).split()) > 1}

    enabled = sorted(with_keys | with_groups | accounts - _disabled(host))
    assert not enabled, f"enabled: {', '.join(enabled)}; an apply with an administrator's account disables them"


def test_system_accounts_have_no_password(host: Host, node: NodePlan) -> None:
    """No system account and no group has a password."""
    logins = {*node.accounts.uids, *node.accounts.departed, *_system_logins(node)}
    locks = {name: lock[:1] for name, lock, *_ in account_entries(host, "/etc/shadow") if name not in logins}
    groups = {name: lock[:1] for name, lock, *_ in account_entries(host, "/etc/gshadow")}

    assert [name for name, lock in locks.items() if lock not in {"*", "!"}] == []
    assert [name for name, lock in groups.items() if lock not in {"*", "!", ""}] == []


def test_root_has_no_password(host: Host) -> None:
    """Root's password is locked; with one, root could log in at a console without a name in the logs."""
    (lock,) = (lock[:1] for name, lock, *_ in account_entries(host, "/etc/shadow") if name == "root")
    assert lock in {"*", "!"}, "root has a password, or an empty one"


def test_only_administrators_have_sudo(host: Host, node: NodePlan) -> None:
    """Only administrators can become root with sudo, whichever file of /etc/sudoers.d grants it."""
    sudoers = {*host.check_output(_MAY_SUDO).split()}

    assert sudoers - _system_logins(node) == {person.name for person in node.accounts.people if person.admin}


def test_polkit_rules_belong_to_packages(host: Host) -> None:
    """Every polkit rule is an unchanged file of a package; a rule can give root to anyone, without sudo."""
    assert host.check_output(_UNPACKAGED_RULES) == ""


def _system_logins(node: NodePlan) -> set[str]:
    """Return the login accounts of the system."""
    # The package gives the account of PostgreSQL a shell, and no password.
    packaged = {"postgres"} if NodeRole.HUB in node.roles else set()
    return {"root", _SESSION_MANAGER if node.platform is Platform.CLOUD else INITIAL_ACCOUNT, *packaged}


def _disabled(host: Host) -> set[str]:
    """Return the accounts of the image that have no shell and no password, and have expired."""
    shells = {name: shell for name, *_, shell in account_entries(host, "/etc/passwd")}
    locks = {name: (lock[:1], ends) for name, lock, *_, ends, _ in account_entries(host, "/etc/shadow")}
    return {
        name
        for name in IMAGE_ACCOUNTS
        if shells.get(name) == "/usr/sbin/nologin" and locks.get(name) in {("*", "1"), ("!", "1")}
    }


KEYS = "/etc/ssh/authorized_keys.d"
HAS_LIMITED_PEOPLE = applies_if(lambda node: bool(node.accounts.having(Access.TOKENS, Access.NONE)))
HAS_FORMER_PEOPLE = applies_if(lambda node: bool(node.accounts.departed))
HOLDS_HOMES = applies_if(lambda node: any(share.mount == "/home" for share in node.shares))


def test_people_have_their_ids(host: Host, node: NodePlan) -> None:
    """Each person has the same account ID on all nodes, because files on shared storage belong to IDs."""
    ids = {name: (int(uid), int(gid)) for name, _, uid, gid, *_ in account_entries(host, "/etc/passwd")}

    planned = {name: (uid, uid) for name, uid in node.accounts.uids.items()}
    assert {name: ids.get(name) for name in planned} == planned


def test_people_can_log_in(host: Host, node: NodePlan) -> None:
    """Each person of the machine has a shell, a home named after them, and an account that does not expire."""
    logins = {name: (home, shell) for name, *_, home, shell in account_entries(host, "/etc/passwd")}
    expiries = {fields[0]: fields[7] for fields in account_entries(host, "/etc/shadow")}

    for name in (person.name for person in node.accounts.having(Access.LOGIN)):
        assert name in logins, f"{name} has no account"
        home, shell = logins[name]
        assert (home, expiries[name]) == (f"/home/{name}", "")
        assert not shell.endswith(("nologin", "false"))


@HAS_LIMITED_PEOPLE
def test_others_than_administrators_cannot_log_in(host: Host, node: NodePlan) -> None:
    """On machines that are no workbench, people without administration have no login; members give them tokens only."""
    logins = {name: (home, shell) for name, *_, home, shell in account_entries(host, "/etc/passwd")}
    expiries = {fields[0]: fields[7] for fields in account_entries(host, "/etc/shadow")}

    for person in node.accounts.having(Access.TOKENS):
        assert (logins[person.name], expiries[person.name]) == ((TOKEN_HOME, TOKEN_SHELL), "")
    for person in node.accounts.having(Access.NONE):
        assert (logins[person.name][1], expiries[person.name]) == (NO_SHELL, "1")
        assert not host.file(f"{KEYS}/{person.name}").exists


def test_people_have_no_password(host: Host, node: NodePlan) -> None:
    """No person has a password; people log in with keys."""
    locks = {name: lock[:1] for name, lock, *_ in account_entries(host, "/etc/shadow")}

    account_names = {*node.accounts.uids, *node.accounts.departed}
    assert {name for name in account_names & locks.keys() if locks[name] not in {"*", "!"}} == set()


def test_groups_match_the_fleet_file(host: Host, node: NodePlan) -> None:
    """Each group has its ID and exactly the members in the fleet file."""
    groups = {name: (int(gid), members) for name, _, gid, members in account_entries(host, "/etc/group")}

    for group, gid in node.accounts.groups.items():
        planned = {person.name for person in node.accounts.people if group in person.groups}
        group_id, members = groups.get(group, (None, ""))
        assert (group_id, {*members.split(",")} - {""}) == (gid, planned)


def test_people_are_in_no_system_groups(host: Host, node: NodePlan) -> None:
    """No person is in a system group: docker, disk or sudo would make them root."""
    people = {*node.accounts.uids, *node.accounts.departed}

    planned = {*node.accounts.groups, *people}
    listed = {name: people & {*members.split(",")} for name, *_, members in account_entries(host, "/etc/group")}
    assert {name: members for name, members in listed.items() if members and name not in planned} == {}
    # A login also gets its primary group, and groups from other NSS sources than /etc/group, such as systemd.
    command = f"for name in {' '.join(sorted(people))}; do echo $name $(id --groups --name $name 2>/dev/null); done"
    rows = map(str.split, host.check_output(command).splitlines())
    system_groups = {name: {*groups} - planned for name, *groups in rows}
    assert {name: groups for name, groups in system_groups.items() if groups} == {}


def test_fleet_ids_are_not_reused(host: Host, node: NodePlan) -> None:
    """No other account or group has an ID of the fleet's ranges; it would own files of people."""
    logins = {name for name, _, uid, *_ in account_entries(host, "/etc/passwd") if int(uid) in PEOPLE_IDS}
    gids = {name: int(gid) for name, _, gid, _ in account_entries(host, "/etc/group")}
    groups = {name for name, gid in gids.items() if gid in PEOPLE_IDS or gid in GROUP_IDS}

    people = {*node.accounts.uids, *node.accounts.departed}
    assert logins - people == set()
    assert groups - people - node.accounts.groups.keys() - node.accounts.past_groups.keys() == set()


def test_keys_match_the_fleet_file(host: Host, node: NodePlan) -> None:
    """Each person's SSH keys match the fleet file."""
    for person in node.accounts.having(Access.LOGIN, Access.TOKENS):
        assert host.file(f"{KEYS}/{person.name}").content_string.splitlines() == list(person.keys)


def test_keys_belong_to_root(host: Host, node: NodePlan) -> None:
    """Only root can change SSH keys; all can read them, because sshd reads them as the person."""
    files = host.check_output("stat -c '%%a %%U:%%G %%n' %s %s/*", KEYS, KEYS).splitlines()

    users = node.accounts.having(Access.LOGIN, Access.TOKENS)
    planned = {f"644 root:root {KEYS}/{person.name}" for person in users}
    assert {*files} == {f"755 root:root {KEYS}", *planned}


def test_first_account_accepts_only_administrators(host: Host, node: NodePlan) -> None:
    """The first account of the machine accepts only keys of current administrators."""
    files = {name: host.run("cat ~%s/.ssh/authorized_keys", name).stdout for name in IMAGE_ACCOUNTS}
    differing = sorted(name for name, text in files.items() if text not in {"", node.accounts.admin_keys_file})

    assert not differing, f"keys other than administrators': {', '.join(differing)}"


def test_sudo_rules_belong_to_root(host: Host) -> None:
    """Only root can change the sudo rules of people, and the rules are valid."""
    rules = host.file("/etc/sudoers.d/50-bedplate-people")

    assert (rules.user, rules.group, rules.mode) == ("root", "root", 0o440)
    assert host.run("visudo --check --quiet").succeeded


def test_first_login_creates_the_home(host: Host) -> None:
    """The first login creates the home, readable by its owner only."""
    assert host.file("/etc/pam.d/common-session").contains("pam_mkhomedir.so umask=0077")


@HAS_FORMER_PEOPLE
def test_former_people_cannot_log_in(host: Host, node: NodePlan) -> None:
    """Former people have no shell, no key and no sudo; their names remain, because files still belong to them."""
    shells = {name: shell for name, *_, shell in account_entries(host, "/etc/passwd")}
    expiries = {fields[0]: fields[7] for fields in account_entries(host, "/etc/shadow")}

    for name in node.accounts.departed.keys() & shells.keys():
        assert (shells[name], expiries[name]) == ("/usr/sbin/nologin", "1")
        assert not host.file(f"{KEYS}/{name}").exists
        assert "not allowed" in host.run("sudo --list --other-user=%s", name).stdout


@applies_if(lambda node: bool(node.accounts.departed or node.accounts.having(Access.NONE)))
def test_former_people_run_nothing(host: Host, node: NodePlan) -> None:
    """Former people, and people who may not log in, have no processes, even as root, and start none at boot."""
    command = "{ stat -c %u /proc/[0-9]*; grep -hs . /proc/[0-9]*/loginuid; } 2>/dev/null || true"
    running = {int(uid) for uid in host.check_output(command).split()}
    lingering = set(host.check_output("ls /var/lib/systemd/linger 2>/dev/null || true").split())

    barred = {**node.accounts.departed, **{person.name: person.uid for person in node.accounts.having(Access.NONE)}}
    assert running & {*barred.values()} == set()
    assert lingering & barred.keys() == set()


@HOLDS_HOMES
def test_homes_on_the_server_belong_to_people(host: Host, node: NodePlan) -> None:
    """Each person's home on the file server exists and is theirs, because clients cannot create it as root."""
    folder = next(share.path for share in node.shares if share.mount == "/home")
    owners = dict(
        reversed(line.split(" ", 1))
        for line in host.check_output("find %s -mindepth 1 -maxdepth 1 -printf '%%U %%f\\n'", folder).splitlines()
    )

    assert {name: owners.get(name) for name in node.accounts.uids} == {
        name: str(uid) for name, uid in node.accounts.uids.items()
    }
