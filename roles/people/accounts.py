"""What a node knows of accounts: logins, groups, who runs something. Never asks for a password's hash."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

from bedplate.errors import InputError
from bedplate.plan.fleet import PEOPLE_IDS, Account, Accounts
from roles.base import Due
from roles.hardened.logins import IMAGE_ACCOUNTS

KEYS = "/etc/ssh/authorized_keys.d"
# Homes of the machine's own accounts alone: people's may lie on a file server that is away.
_FIRST = (
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
    """An account of the node; `lock` is the first sign of its password field, `expires` a day since 1970 or nothing."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    lock: str = "*"
    expires: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of the node and who is in it beside those whose own it is."""

    name: str
    gid: int
    members: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it; `busy` are the user ids with processes, `lingering` and `keyed` names with units and with keys.

    Of the accounts that the machine's image came with, `first` are those with a file of keys in their homes, and it,
    and `granted` those whom rules of sudo name. `by` is the account that whoever asks came in by, if not root's own.
    """

    logins: Mapping[str, Login] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    busy: frozenset[int] = frozenset()
    lingering: frozenset[str] = frozenset()
    keyed: frozenset[str] = frozenset()
    first: Mapping[str, str] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    by: str = ""


class Accounted(FactBase[Standing]):
    """The standing of a node, in one question."""

    default = Standing

    def command(self) -> str:
        """Ask; of a password only its first sign leaves the node, which tells a locked one from one that is set."""
        return "; ".join(
            (
                "sed s/^/login:/ /etc/passwd",
                "sed s/^/group:/ /etc/group",
                'awk -F: \'{ print "lock:" $1 ":" substr($2, 1, 1) ":" $8 }\' /etc/shadow',
                "{ stat -c %u /proc/[0-9]*; grep -hs . /proc/[0-9]*/loginuid; } 2>/dev/null | sort -u | sed s/^/busy:/",
                f"ls {LINGER} 2>/dev/null | sed s/^/lingering:/",
                f"ls -A {KEYS} 2>/dev/null | sed s/^/keyed:/",
                _FIRST,
                _GRANTED,
                'echo "by:${SUDO_USER:-}"',
            )
        )

    def process(self, output: Iterable[str]) -> Standing:
        """Sort the lines by what they are about."""
        told: dict[str, list[str]] = {}
        for line in output:
            kind, _, rest = line.partition(":")
            told.setdefault(kind, []).append(rest)
        locks = {name: rest for name, _, rest in (line.partition(":") for line in told.get("lock", ()))}
        logins = [_login(fields, locks) for fields in _entries(told.get("login", ()), 7)]
        groups = [_group(fields) for fields in _entries(told.get("group", ()), 4)]
        return Standing(
            {each.name: each for each in logins},
            {each.name: each for each in groups},
            frozenset(int(uid) for uid in told.get("busy", ())),
            frozenset(told.get("lingering", ())),
            frozenset(told.get("keyed", ())),
            {name: file for name, _, file in (line.partition(":") for line in told.get("first", ()))},
            frozenset(told.get("granted", ())),
            "".join(told.get("by", ())),
        )


def _entries(lines: Iterable[str], count: int) -> Iterator[Sequence[str]]:
    """Yield the fields of each entry; lines that are none, blank ones and those that ask another list, are skipped."""
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
NO_SHELL = "/usr/sbin/nologin"
# Matches no password, and is not the sign by which sshd without PAM refuses keys too.
NO_PASSWORD = "*"  # noqa: S105
_NO_PASSWORDS = frozenset({"*", "!"})
# The first day that there was: shadow(5) takes 0 for no date at all.
_LONG_AGO = "1"
# login.defs ends below people, and above its end useradd gives no ranges to containers without root. Source: subuid(5).
_SUBIDS = f"--key UID_MAX={PEOPLE_IDS[-1]}"
# What somebody became root for is root's process, and the kernel remembers who logged in: proc(5), loginuid.
_END_SESSIONS = (
    "for each in /proc/[0-9]*; do "
    '[ "$(cat $each/loginuid 2>/dev/null)" != {uid} ] || kill -KILL ${{each#/proc/}} 2>/dev/null || true; done'
)


def dues(accounts: Accounts, standing: Standing) -> Iterator[Due]:
    """Yield what is to be done, in its order: groups before those who are in them."""
    for group, gid in {**accounts.uids, **accounts.groups}.items():
        if group not in standing.groups:
            yield Due(f"Group {group}", (f"groupadd --gid {gid} {group}",))
    for person in accounts.people:
        yield from _account(person, standing)
    for name, uid in accounts.departed.items():
        yield from _lock_out(name, uid, standing)
    yield from _root(standing)
    yield from _memberships(accounts, standing)


def endings(accounts: Accounts, standing: Standing) -> Iterator[Due]:
    """Yield the ends of what people who left have running; their files stay."""
    for name, uid in accounts.departed.items():
        yield from ended(name, uid, standing)


def ended(name: str, uid: int, standing: Standing) -> Iterator[Due]:
    """Yield the ends of what an account has running, or would start at boot."""
    if name in standing.lingering:
        yield Due(f"{name} starts nothing at boot", (f"rm -f {LINGER}/{name}",))
    if uid in standing.busy:
        # Status 1: whatever ran has ended meanwhile.
        ours = f"pkill -KILL --uid {uid} || test $? -eq 1"
        yield Due(f"{name} runs nothing", (ours, _END_SESSIONS.format(uid=uid)))


def locking(login: Login) -> tuple[str, ...]:
    """Return what lets nobody in by an account, where it is not so already: no shell, no password, past its end."""
    if (login.expires, login.shell) == (_LONG_AGO, NO_SHELL) and login.lock in _NO_PASSWORDS:
        return ()
    return (f"usermod --expiredate {_LONG_AGO} --shell {NO_SHELL} --password '{NO_PASSWORD}' {login.name}",)


def home_of(name: str) -> str:
    """Return where somebody's home is on every node."""
    return f"{HOMES}/{name}"


def _account(person: Account, standing: Standing) -> Iterator[Due]:
    name, home = person.name, home_of(person.name)
    login = standing.logins.get(name)
    if login is None:
        words = f"--uid {person.uid} --gid {person.uid} --home-dir {home} --no-create-home --shell {SHELL} {_SUBIDS}"
        yield Due(f"Account {name}", (f"useradd {words} --no-log-init --password '{NO_PASSWORD}' {name}",))
    elif words := " ".join(_amended(person, login)):
        yield Due(f"Account {name}", (f"usermod {words} {name}",))


def _amended(person: Account, login: Login) -> Iterator[str]:
    """Yield the options of usermod(8) that make an account what the plan wants; a shell of somebody's choice stays."""
    if login.gid != person.uid:
        yield f"--gid {person.uid}"
    if login.home != (home := home_of(person.name)):
        yield f"--home {home}"
    if login.shell == NO_SHELL:
        yield f"--shell {SHELL}"
    if login.lock not in _NO_PASSWORDS:
        yield f"--password '{NO_PASSWORD}'"
    if login.expires:
        yield "--expiredate ''"


def _lock_out(name: str, uid: int, standing: Standing) -> Iterator[Due]:
    login = standing.logins.get(name)
    if login and login.uid == uid and (commands := locking(login)):
        yield Due(f"{name} is locked out", commands)


def _root(standing: Standing) -> Iterator[Due]:
    """Yield what lets nobody in as root by a password; the sign before it keeps what was set, for whoever undoes it."""
    login = standing.logins.get("root")
    if login and login.lock not in _NO_PASSWORDS:
        yield Due("Root's password is locked", ("usermod --lock root",))


def _memberships(accounts: Accounts, standing: Standing) -> Iterator[Due]:
    """Yield the groups whose members are others than the plan's; a group of the system loses people alone."""
    for group in accounts.groups:
        wanted = {person.name for person in accounts.people if group in person.groups}
        there = standing.groups[group].members if group in standing.groups else frozenset()
        if wanted != there:
            yield Due(f"Members of {group}", (f"gpasswd --members '{_listed(wanted)}' {group}",))
    known = {*accounts.uids, *accounts.departed}
    for group, told in standing.groups.items():
        for name in sorted(told.members & known if group not in accounts.groups else ()):
            yield Due(f"{name} is not in {group}", (f"gpasswd --delete {name} {group}",))


def _listed(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def refuse_conflicts(accounts: Accounts, standing: Standing) -> None:
    """Raise InputError where a name or an id of the fleet's is somebody else's on the node."""
    logins = {name: login.uid for name, login in standing.logins.items()}
    groups = {name: group.gid for name, group in standing.groups.items()}
    found = (
        *_conflicts("account", accounts.uids, logins),
        *_departed(accounts.departed, logins),
        *_conflicts("group", {**accounts.uids, **accounts.groups}, groups),
    )
    if found:
        raise InputError(
            "; ".join(found),
            fix="rename what is there (`usermod`, `groupmod`), with its files, or remove it: those of the fleet have "
            "their names and ids in fleet.lock for ever",
        )


def _conflicts(noun: str, wanted: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    names = {number: name for name, number in there.items()}
    for name, number in wanted.items():
        if there.get(name, number) != number:
            yield f"the {noun} {name} has id {there[name]} here, not the fleet's {number}"
        elif names.get(number, name) != name:
            yield f"id {number} is the {noun} {names[number]}'s here, not {name}'s"


def _departed(departed: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    """Yield those who would be locked out for a name that is another's here."""
    for name, number in departed.items():
        if there.get(name, number) != number:
            yield f"{name}, who left the fleet with id {number}, is another account here, with id {there[name]}"
