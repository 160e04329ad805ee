"""What a node knows of accounts: logins, groups, who runs something. Never asks for a password's hash."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

from roles.hardened.sshd import IMAGE_ACCOUNTS

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
