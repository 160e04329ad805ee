"""Every node: that nobody beside the fleet's people has an account, or becomes root.

What a machine has by itself: root, on a site the account by which it is first configured, in the cloud that of Session
Manager, and accounts of daemons, which nobody can be. Others that its image came with are shut.
"""

from testinfra.host import Host

from bedplate.compliance.settings import entries, strangers, strays
from bedplate.compliance.subject import concerns
from bedplate.nodes.ssh import FIRST
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS
from bedplate.plan.nodes import Ground, NodePlan, first_keys
from roles.hardened.logins import IMAGE_ACCOUNTS

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


KEYS = "/etc/ssh/authorized_keys.d"
HAS_LEAVERS = concerns(lambda node: bool(node.accounts.departed))
HOLDS_HOMES = concerns(lambda node: any(share.mount == "/home" for share in node.shares))


def test_everybody_has_their_account_and_their_id(host: Host, node: NodePlan) -> None:
    """Files on shared storage belong to numbers: the same person has the same one everywhere."""
    there = {name: (int(uid), int(gid)) for name, _, uid, gid, *_ in entries(host, "/etc/passwd")}

    wanted = {name: (uid, uid) for name, uid in node.accounts.uids.items()}
    assert {name: there.get(name) for name in wanted} == wanted


def test_everybody_can_log_in(host: Host, node: NodePlan) -> None:
    """Whoever is in the fleet file has a shell, a home of their own name, and no date on which it ends."""
    logins = {name: (home, shell) for name, *_, home, shell in entries(host, "/etc/passwd")}
    ends = {fields[0]: fields[7] for fields in entries(host, "/etc/shadow")}

    for name in node.accounts.uids:
        assert name in logins, f"{name} has no account"
        home, shell = logins[name]
        assert (home, ends[name]) == (f"/home/{name}", "")
        assert not shell.endswith(("nologin", "false"))


def test_nobody_has_a_password(host: Host, node: NodePlan) -> None:
    """A password can be guessed and shared; people come in by their keys alone."""
    locks = {name: lock[:1] for name, lock, *_ in entries(host, "/etc/shadow")}

    known = {*node.accounts.uids, *node.accounts.departed}
    assert {name for name in known & locks.keys() if locks[name] not in {"*", "!"}} == set()


def test_groups_have_their_ids_and_nobody_else_in_them(host: Host, node: NodePlan) -> None:
    """What a group may read, its members of the fleet file may, and nobody besides."""
    there = {name: (int(gid), {*members.split(",")} - {""}) for name, _, gid, members in entries(host, "/etc/group")}

    for group, gid in node.accounts.groups.items():
        wanted = {person.name for person in node.accounts.people if group in person.groups}
        assert there.get(group) == (gid, wanted)


def test_people_are_in_no_group_of_the_system(host: Host, node: NodePlan) -> None:
    """Groups such as docker, disk and sudo make root of their members, whichever list says who they are."""
    people = {*node.accounts.uids, *node.accounts.departed}

    ours = {*node.accounts.groups, *people}
    listed = {name: people & {*members.split(",")} for name, *_, members in entries(host, "/etc/group")}
    assert {name: members for name, members in listed.items() if members and name not in ours} == {}
    # systemd has lists beside /etc/group, and everybody a group of their own: a login gets what NSS says.
    asked = f"for name in {' '.join(sorted(people))}; do echo $name $(id --groups --name $name 2>/dev/null); done"
    given = {name: {*groups} - ours for name, *groups in map(str.split, host.check_output(asked).splitlines())}
    assert {name: groups for name, groups in given.items() if groups} == {}


def test_ids_of_people_and_groups_are_nobody_elses(host: Host, node: NodePlan) -> None:
    """A stranger with an id of the fleet's range would own somebody's files."""
    logins = {name for name, _, uid, *_ in entries(host, "/etc/passwd") if int(uid) in PEOPLE_IDS}
    gids = {name: int(gid) for name, _, gid, _ in entries(host, "/etc/group")}
    groups = {name for name, gid in gids.items() if gid in PEOPLE_IDS or gid in GROUP_IDS}

    people = {*node.accounts.uids, *node.accounts.departed}
    assert logins - people == set()
    assert groups - people - node.accounts.groups.keys() - node.accounts.past_groups.keys() == set()


def test_keys_are_those_of_the_fleet_file(host: Host, node: NodePlan) -> None:
    """Whoever may log in is decided in one place."""
    for person in node.accounts.people:
        assert host.file(f"{KEYS}/{person.name}").content_string.splitlines() == list(person.keys)


def test_keys_are_roots_own(host: Host, node: NodePlan) -> None:
    """Nobody adds a key but by the fleet file; sshd reads them as the person, so all may read."""
    told = host.check_output("stat -c '%%a %%U:%%G %%n' %s %s/*", KEYS, KEYS).splitlines()

    wanted = {f"644 root:root {KEYS}/{name}" for name in node.accounts.uids}
    assert {*told} == {f"755 root:root {KEYS}", *wanted}


def test_the_first_account_takes_administrators_keys_alone(host: Host, node: NodePlan) -> None:
    """Whoever is an administrator no more does not come in as the account that the machine was first configured by."""
    found = {name: host.run("cat ~%s/.ssh/authorized_keys", name).stdout for name in IMAGE_ACCOUNTS}
    strange = sorted(name for name, text in found.items() if text not in {"", first_keys(node.accounts)})

    assert not strange, f"not administrators' keys alone: {', '.join(strange)}"


def test_sudo_reads_rules_that_root_alone_may_write(host: Host) -> None:
    """A rule that anybody may change makes anybody an administrator."""
    rules = host.file("/etc/sudoers.d/50-bedplate-people")

    assert (rules.user, rules.group, rules.mode) == ("root", "root", 0o440)
    assert host.run("visudo --check --quiet").succeeded


def test_a_first_login_makes_the_home(host: Host) -> None:
    """For its owner alone to read, wherever homes lie."""
    assert host.file("/etc/pam.d/common-session").contains("pam_mkhomedir.so umask=0077")


@HAS_LEAVERS
def test_who_left_is_locked_out(host: Host, node: NodePlan) -> None:
    """No shell, no key, no way to become root; the name stays, for files are still theirs."""
    shells = {name: shell for name, *_, shell in entries(host, "/etc/passwd")}
    ends = {fields[0]: fields[7] for fields in entries(host, "/etc/shadow")}

    for name in node.accounts.departed.keys() & shells.keys():
        assert (shells[name], ends[name]) == ("/usr/sbin/nologin", "1")
        assert not host.file(f"{KEYS}/{name}").exists
        assert "not allowed" in host.run("sudo --list --other-user=%s", name).stdout


@HAS_LEAVERS
def test_who_left_runs_nothing(host: Host, node: NodePlan) -> None:
    """Nothing goes on in the name of somebody who is gone, even as root, nor starts with the next boot."""
    asked = "{ stat -c %u /proc/[0-9]*; grep -hs . /proc/[0-9]*/loginuid; } 2>/dev/null || true"
    busy = {int(uid) for uid in host.check_output(asked).split()}
    lingering = set(host.check_output("ls /var/lib/systemd/linger 2>/dev/null || true").split())

    assert busy & {*node.accounts.departed.values()} == set()
    assert lingering & node.accounts.departed.keys() == set()


@HOLDS_HOMES
def test_homes_on_the_file_server_are_their_owners(host: Host, node: NodePlan) -> None:
    """On the machines that mount them root is nobody, so each is there before its owner first logs in."""
    folder = next(share.path for share in node.shares if share.mount == "/home")
    told = dict(
        reversed(line.split(" ", 1))
        for line in host.check_output("find %s -mindepth 1 -maxdepth 1 -printf '%%U %%f\\n'", folder).splitlines()
    )

    assert {name: told.get(name) for name in node.accounts.uids} == {
        name: str(uid) for name, uid in node.accounts.uids.items()
    }
