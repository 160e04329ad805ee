"""What is to be done about a node's accounts, from what they are and what the plan wants: decides, and does nothing."""

from collections.abc import Iterable, Iterator

from bedplate.plan.accounts import PEOPLE_IDS, Account, Accounts
from roles.due import Due
from roles.people.standing import LINGER, Login, Standing

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
