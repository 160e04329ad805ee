"""The accounts on a node, and the changes that make them match the fleet file. Never reads a password hash."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

from bedplate.errors import InputError
from bedplate.plan.fleet import PEOPLE_IDS, Access, Account, Accounts
from roles.base import PendingChange
from roles.hardened.logins import IMAGE_ACCOUNTS

KEYS = "/etc/ssh/authorized_keys.d"
# Only homes of the image's accounts: those of people may be on a file server that is down.
_IMAGE_KEYS = (
    f"for name in {' '.join(IMAGE_ACCOUNTS)}; do"
    ' home=$(getent passwd "$name" | cut -d: -f6); file=$home/.ssh/authorized_keys;'
    ' if [ "$home" ] && { [ -e "$file" ] || [ -L "$file" ]; }; then echo "first:$name:$file"; fi; done'
)
_GRANTED = (
    rf"sed -nE 's/^[[:space:]]*({'|'.join(IMAGE_ACCOUNTS)})[[:space:]].*/granted:\1/p' /etc/sudoers.d/* 2>/dev/null"
)
LINGER = "/var/lib/systemd/linger"


@dataclass(frozen=True, slots=True)
class Login:
    """An account; `lock` is the first character of its password field, `expires` the days since 1970 or empty."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    lock: str = "*"
    expires: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its additional members."""

    name: str
    gid: int
    members: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AccountState:
    """All accounts of a node.

    `busy`: user ids with processes. `lingering`, `keyed`: names of accounts with units at boot, and with our key files.
    `first`: the key file in the home of each account of the image; `granted`: accounts of the image with sudo rules.
    `by`: the account that the apply logged in with; empty for root.
    """

    logins: Mapping[str, Login] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    busy: frozenset[int] = frozenset()
    lingering: frozenset[str] = frozenset()
    keyed: frozenset[str] = frozenset()
    first: Mapping[str, str] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    by: str = ""


class ReadAccounts(FactBase[AccountState]):
    """The state of all accounts, in one query."""

    default = AccountState

    def command(self) -> str:
        """Print all accounts; of a password only the first character, which shows whether it is locked."""
        return "; ".join(
            (
                "sed s/^/login:/ /etc/passwd",
                "sed s/^/group:/ /etc/group",
                'awk -F: \'{ print "lock:" $1 ":" substr($2, 1, 1) ":" $8 }\' /etc/shadow',
                "{ stat -c %u /proc/[0-9]*; grep -hs . /proc/[0-9]*/loginuid; } 2>/dev/null | sort -u | sed s/^/busy:/",
                f"ls {LINGER} 2>/dev/null | sed s/^/lingering:/",
                f"ls -A {KEYS} 2>/dev/null | sed s/^/keyed:/",
                _IMAGE_KEYS,
                _GRANTED,
                'echo "by:${SUDO_USER:-}"',
            )
        )

    def process(self, output: Iterable[str]) -> AccountState:
        """Parse the lines by their prefix."""
        rows: dict[str, list[str]] = {}
        for line in output:
            kind, _, rest = line.partition(":")
            rows.setdefault(kind, []).append(rest)
        locks = {name: rest for name, _, rest in (line.partition(":") for line in rows.get("lock", ()))}
        logins = [_login(fields, locks) for fields in _entries(rows.get("login", ()), 7)]
        groups = [_group(fields) for fields in _entries(rows.get("group", ()), 4)]
        return AccountState(
            {login.name: login for login in logins},
            {group.name: group for group in groups},
            frozenset(int(uid) for uid in rows.get("busy", ())),
            frozenset(rows.get("lingering", ())),
            frozenset(rows.get("keyed", ())),
            {name: file for name, _, file in (line.partition(":") for line in rows.get("first", ()))},
            frozenset(rows.get("granted", ())),
            "".join(rows.get("by", ())),
        )


def _entries(lines: Iterable[str], count: int) -> Iterator[Sequence[str]]:
    """Yield the fields of each entry; blank lines and NIS entries are skipped."""
    for line in lines:
        fields = line.split(":")
        if len(fields) == count and fields[2].isdecimal():
            yield fields


def _login(fields: Sequence[str], locks: Mapping[str, str]) -> Login:
    name, _, uid, gid, _, home, shell = fields
    lock, _, expires = locks.get(name, "*:").partition(":")
    return Login(name, int(uid), int(gid), home, shell, lock, expires)


def _group(fields: Sequence[str]) -> Group:
    name, _, gid, members = fields
    return Group(name, int(gid), frozenset(filter(None, members.split(","))))


HOMES = "/home"
SHELL = "/bin/bash"
# For accounts that get tokens only: sshd starts their command with this shell, which reads no file of a home, and their
# home has nothing of theirs, so that systemd and PAM start nothing that they left on the machine.
TOKEN_SHELL, TOKEN_HOME = "/bin/sh", "/"
NO_SHELL = "/usr/sbin/nologin"
# Matches no password. With `!`, sshd without PAM would also refuse keys.
NO_PASSWORD = "*"  # noqa: S105
_NO_PASSWORDS = frozenset({"*", "!"})
# 2 January 1970: shadow(5) reads 0 as no date.
_EXPIRED = "1"
# UID_MAX of login.defs is below the fleet's ids; useradd gives no subuid range to ids above it. Source: subuid(5).
_SUBIDS = f"--key UID_MAX={PEOPLE_IDS[-1]}"
_SLICE = "/sys/fs/cgroup/user.slice/user-{uid}.slice/cgroup.kill"
# Processes started with sudo belong to root; the kernel records the login user: proc(5), loginuid.
_END_SESSIONS = (
    "for each in /proc/[0-9]*; do "
    '[ "$(cat $each/loginuid 2>/dev/null)" != {uid} ] || kill -KILL ${{each#/proc/}} 2>/dev/null || true; done'
)


# Those of `bp secret`, by the rights of their person: root may have none on a file server, which may be down.
_END_SECRETS = (
    "timeout --signal=KILL 10 setpriv --reuid={uid} --regid={uid} --clear-groups "
    "rm -rf /home/{name}/.config/bedplate/secrets || true"
)


def account_changes(accounts: Accounts, state: AccountState) -> Iterator[PendingChange]:
    """Yield the changes of groups and accounts; groups first."""
    for group, gid in {**accounts.uids, **accounts.groups}.items():
        if group not in state.groups:
            yield PendingChange(f"Create group {group}", (f"groupadd --gid {gid} {group}",))
    for person in accounts.people:
        yield from _change_account(person, state)
    for name, uid in accounts.departed.items():
        yield from _lock_account(name, uid, state, (_END_SECRETS.format(name=name, uid=uid),))
    yield from _lock_root(state)
    yield from _change_members(accounts, state)


def end_departed(accounts: Accounts, state: AccountState) -> Iterator[PendingChange]:
    """Yield the changes that end all processes of people who left, or may not log in here; their files are kept."""
    barred = {person.name: person.uid for person in accounts.having(Access.NONE)}
    for name, uid in {**accounts.departed, **barred}.items():
        yield from end_processes(name, uid, state)


def end_processes(name: str, uid: int, state: AccountState) -> Iterator[PendingChange]:
    """Yield the changes that end an account's processes, also those that start at boot."""
    if name in state.lingering:
        yield PendingChange(f"Disable lingering of {name}", (f"rm -f {LINGER}/{name}",))
    if uid in state.busy:
        yield PendingChange(f"End all processes of {name}", _end_commands(uid))


def _end_commands(uid: int) -> tuple[str, ...]:
    # The kernel ends the whole slice of a user at once: a process that always forks is gone before pkill sees its id.
    every = _SLICE.format(uid=uid)
    # Status 1: no process is left.
    pkill = f"pkill -KILL --uid {uid} || test $? -eq 1"
    return (f"test ! -e {every} || echo 1 > {every} || true", pkill, _END_SESSIONS.format(uid=uid))


def lock_commands(login: Login) -> tuple[str, ...]:
    """Return the commands that lock an account: no shell, no password, expired; none if it is locked."""
    if (login.expires, login.shell) == (_EXPIRED, NO_SHELL) and login.lock in _NO_PASSWORDS:
        return ()
    return (f"usermod --expiredate {_EXPIRED} --shell {NO_SHELL} --password '{NO_PASSWORD}' {login.name}",)


def _planned(person: Account) -> tuple[str, str]:
    """Return the home and the shell of an account, the same home on every node."""
    if person.access is Access.TOKENS:
        return TOKEN_HOME, TOKEN_SHELL
    return f"{HOMES}/{person.name}", NO_SHELL if person.access is Access.NONE else SHELL


def _change_account(person: Account, state: AccountState) -> Iterator[PendingChange]:
    name, (home, shell) = person.name, _planned(person)
    login = state.logins.get(name)
    if login is None:
        end = f" --expiredate {_EXPIRED}" if person.access is Access.NONE else ""
        options = f"--uid {person.uid} --gid {person.uid} --home-dir {home} --no-create-home --shell {shell} {_SUBIDS}"
        command = f"useradd {options} --no-log-init --password '{NO_PASSWORD}'{end} {name}"
        yield PendingChange(f"Create account {name}", (command,))
    elif person.access is Access.NONE:
        yield from _lock_account(name, person.uid, state)
    elif options := " ".join(_usermod_options(person, login)):
        # usermod changes no home of an account with processes, and a session from before would keep its shell.
        is_limited = person.access is Access.TOKENS and login.home != home
        end_all = _lock_and_end(login) if is_limited else ()
        yield PendingChange(f"Update account {name}", (*end_all, f"usermod {options} {name}"))


def _lock_and_end(login: Login) -> tuple[str, ...]:
    """Return the commands that end an account's logins and processes for good, also those that start at boot."""
    return (f"rm -f {LINGER}/{login.name}", *lock_commands(login), *_end_commands(login.uid))


def _usermod_options(person: Account, login: Login) -> Iterator[str]:
    """Yield the options of usermod(8) that match an account with the plan; a person's own choice of a shell is kept."""
    home, shell = _planned(person)
    is_moved = login.home != home
    if login.gid != person.uid:
        yield f"--gid {person.uid}"
    if is_moved:
        yield f"--home {home}"
    if login.shell == NO_SHELL or is_moved or (person.access is Access.TOKENS and login.shell != shell):
        yield f"--shell {shell}"
    if login.lock not in _NO_PASSWORDS:
        yield f"--password '{NO_PASSWORD}'"
    if login.expires or (is_moved and person.access is Access.TOKENS):
        yield "--expiredate ''"


def _lock_account(name: str, uid: int, state: AccountState, others: Sequence[str] = ()) -> Iterator[PendingChange]:
    login = state.logins.get(name)
    if login and login.uid == uid and (commands := lock_commands(login)):
        yield PendingChange(f"Lock account {name}", (*commands, *others))


def _lock_root(state: AccountState) -> Iterator[PendingChange]:
    """Yield the change that locks root's password, which can be unlocked again."""
    login = state.logins.get("root")
    if login and login.lock not in _NO_PASSWORDS:
        yield PendingChange("Lock the password of root", ("usermod --lock root",))


def _change_members(accounts: Accounts, state: AccountState) -> Iterator[PendingChange]:
    """Yield the changes of group members; from system groups, only people of the fleet are removed."""
    for group in accounts.groups:
        planned = {person.name for person in accounts.people if group in person.groups}
        actual = state.groups[group].members if group in state.groups else frozenset()
        if planned != actual:
            yield PendingChange(f"Set members of {group}", (f"gpasswd --members '{_join(planned)}' {group}",))
    people = {*accounts.uids, *accounts.departed}
    for group, entry in state.groups.items():
        for name in sorted(entry.members & people if group not in accounts.groups else ()):
            yield PendingChange(f"Remove {name} from {group}", (f"gpasswd --delete {name} {group}",))


def _join(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def refuse_conflicts(accounts: Accounts, state: AccountState) -> None:
    """Raise InputError if the node uses a name or an id of the fleet for another account or group."""
    logins = {name: login.uid for name, login in state.logins.items()}
    groups = {name: group.gid for name, group in state.groups.items()}
    conflicts = (
        *_conflicts("account", accounts.uids, logins),
        *_departed(accounts.departed, logins),
        *_conflicts("group", {**accounts.uids, **accounts.groups}, groups),
    )
    if conflicts:
        raise InputError(
            "; ".join(conflicts),
            fix="rename or remove the node's own account or group (`usermod`, `groupmod`) and its files; "
            "names and ids of the fleet are fixed in fleet.lock",
        )


def _conflicts(noun: str, planned: Mapping[str, int], actual: Mapping[str, int]) -> Iterator[str]:
    names = {number: name for name, number in actual.items()}
    for name, number in planned.items():
        if actual.get(name, number) != number:
            yield f"{noun} {name} has id {actual[name]} on the node, but {number} in the fleet"
        elif names.get(number, name) != name:
            yield f"id {number} belongs to {noun} {names[number]} on the node, but to {name} in the fleet"


def _departed(departed: Mapping[str, int], actual: Mapping[str, int]) -> Iterator[str]:
    """Yield the people who left whose name is another account on the node: it would be locked."""
    for name, number in departed.items():
        if actual.get(name, number) != number:
            yield f"account {name} has id {actual[name]} on the node; {name} left the fleet with id {number}"
