"""What of ours a node has already: units, what is mounted where, and who uses it. Asks no file server anything."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

from roles.storage.buckets import SHELL, TABLE
from roles.storage.exported import EXPORTS, GANESHA
from roles.storage.notice import NOTICE
from roles.storage.unit import FOLDER, MARK


@dataclass(frozen=True, slots=True)
class Found:
    """Our units by name with the path of each that has one; sources and users of what is mounted, by path.

    `portmapper`: it may run; `exports` are the files by which something of ours is exported; `told` are those that tell
    people what is shared.
    """

    units: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    portmapper: bool = False
    exports: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()

    def told_users(self, path: str) -> str:
        """Return who uses a path, in words; nothing where nobody does."""
        told = self.users.get(path, ())
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        return ", ".join(told[:_SHOWN]) + more


_SHOWN = 3
# Links of /proc are read as they stand: what they lead to may hang.
_USERS = (
    "find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd -maxdepth 1"
    ' \\( -lname "$path" -o -lname "$path/*" \\) -printf "%p\\n" 2>/dev/null | cut -d/ -f3 | sort -un'
    ' | while read -r pid; do echo "user:$path:$(ps -o user=,comm= -p "$pid" | tr -s " ")"; done'
)


class Finding(FactBase[Found]):
    """All of it in one question."""

    default = Found

    def command(self) -> str:
        """Ask the files, the kernel and the processes."""
        units = f"cd {FOLDER} && for unit in $(grep -lsxF '{MARK}' *.mount *.automount *.service *.timer)"
        path = 'path="$(sed -n s/^Where=//p "$unit")"; echo "unit:$unit:$path"'
        once = f'case "$unit" in *.mount) {_USERS};; esac'
        sources = r"""sed -nE 's/^([^ ]+ ){4}([^ ]+) .* - ([^ ]+) ([^ ]+) .*/source:\2:\3:\4/p' /proc/self/mountinfo"""
        masked = f'[ "$(readlink {FOLDER}/rpcbind.socket)" = /dev/null ] || echo portmapper:'
        exports = f"for f in {EXPORTS} {GANESHA}; do ! grep -qs bedplate $f || echo exports:$f; done"
        told = f"for f in {TABLE} {SHELL} {NOTICE}; do [ ! -e $f ] || echo told:$f; done"
        return f"{units}; do {path}; {once}; done; {sources}; {masked}; {exports}; {told}"

    def process(self, output: Iterable[str]) -> Found:
        """Sort the lines by what they are about; the uppermost mount of a path comes last."""
        told: dict[str, list[str]] = {}
        for line in output:
            kind, _, rest = line.partition(":")
            told.setdefault(kind, []).append(rest)
        return Found(
            units=dict(_parted(told.get("unit", ()))),
            sources=_sources(told.get("source", ())),
            users=_users(told.get("user", ())),
            portmapper="portmapper" in told,
            exports=frozenset(told.get("exports", ())),
            told=frozenset(told.get("told", ())),
        )


def _parted(rows: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((name, rest) for name, _, rest in (row.partition(":") for row in rows))


def _sources(rows: Iterable[str]) -> Mapping[str, str]:
    """Return what is mounted at each path; an automount has yet to mount it."""
    return {path: source for path, kind, source in (row.split(":", 2) for row in rows) if kind != "autofs"}


def _users(rows: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return who uses each path, each as `program user`."""
    users: dict[str, tuple[str, ...]] = {}
    for path, who in _parted(rows):
        users[path] = (*users.get(path, ()), " ".join(reversed(who.split())))
    return users
