"""The role `storage`: what a node mounts and exports, as units that no lost server can hang."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Directory
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.fleet import PEOPLE_IDS, BucketPlan
from bedplate.plan.nodes import Mount, MountKind, Share
from roles.base import Changes, DiskSpace, Due, Role, carry_out
from roles.files import Shipped, removed, ship, text_of
from roles.storage.exports import EXPORTS, GANESHA, KernelServes, Server, folder, serve, server_of
from roles.storage.mounts import (
    MARK,
    NOTICE,
    SHELL,
    UNIT_FOLDER,
    Attached,
    Unit,
    install_aws,
    listed,
    mounted,
    notice,
    shared,
    tunnel,
)
from roles.storage.mounts import TABLE as MOUNTS_TABLE
from roles.system import PACKAGES, install, keep_running

ASIDE = "/var/lib/bedplate/home"


class OwnHomes(FactBase[Mapping[str, tuple[int, str]]]):
    """The id and the home of each account, by name."""

    default = dict

    def command(self) -> str:
        """Ask the node's own table."""
        return "cut -d: -f1,3,6 /etc/passwd"

    def process(self, output: Iterable[str]) -> Mapping[str, tuple[int, str]]:
        """Part the lines; those that are nobody's, blank or of another list, are skipped."""
        parts = (line.split(":") for line in output)
        return {name: (int(uid), home) for name, uid, home in filter(_is_somebodys, parts)}


def _is_somebodys(fields: Sequence[str]) -> bool:
    return len(fields) == 3 and fields[1].isdecimal()  # noqa: PLR2004  name, id and home


def hidden(paths: Collection[str], homes: Mapping[str, tuple[int, str]]) -> Iterator[Due]:
    """Yield the moves: a copy, for somebody may be in the old home, and a line of the table under its lock."""
    for name, (uid, home) in homes.items():
        if uid not in PEOPLE_IDS and any(home.startswith(f"{path}/") for path in paths):
            new = f"{ASIDE}/{name}"
            whole = f"if [ -d {quote(home)} ]; then cp -a {quote(home)} {new} && chmod o= {new}; fi"
            copy = f"install -d -m 755 {ASIDE} && rm -rf {new} && {whole}"
            line = rf"s|^({name}:[^:]*:{uid}:[^:]*:[^:]*):{home}:|\1:{new}:|"
            # usermod refuses while the account has processes, as that of whoever applies has; vipw takes the same lock,
            # and takes a table for unchanged that was changed twice within one second.
            edit = f"sleep 1 && EDITOR={quote(f'sed -i -E {quote(line)}')} vipw --quiet"
            yield Due(
                f"Home of {name} beside {home}", (copy, f"{edit} && grep -q {quote(f'^{name}:.*:{new}:')} /etc/passwd")
            )


SCRIPT = "/usr/local/sbin/bedplate-storage-guard"
TABLE = "/etc/bedplate/mounts"
TIMER, RELEASE, ANSWERS = (
    "bedplate-storage-guard.timer",
    "bedplate-storage-release.service",
    "bedplate-answers@.service",
)
UNITS = (TIMER, "bedplate-storage-guard.service", RELEASE, ANSWERS)


def guard(attached: Iterable[Attached]) -> Iterator[Shipped]:
    """Yield the guard, its units, and the table of what it looks after."""
    rows = sorted(f"{each.store} {each.path} {each.asked}\n" for each in attached if each.asked)
    yield Shipped("Servers of mounts", TABLE, "".join(rows))
    yield Shipped("Guard of mounts", SCRIPT, text_of("storage/bedplate-storage-guard"), "755")
    for name in UNITS:
        yield Shipped(f"Unit {name}", f"{UNIT_FOLDER}/{name}", f"{MARK}\n{text_of(f'storage/{name}')}")


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
        units = f"cd {UNIT_FOLDER} && for unit in $(grep -lsxF '{MARK}' *.mount *.automount *.service *.timer)"
        path = 'path="$(sed -n s/^Where=//p "$unit")"; echo "unit:$unit:$path"'
        once = f'case "$unit" in *.mount) {_USERS};; esac'
        sources = r"""sed -nE 's/^([^ ]+ ){4}([^ ]+) .* - ([^ ]+) ([^ ]+) .*/source:\2:\3:\4/p' /proc/self/mountinfo"""
        masked = f'[ "$(readlink {UNIT_FOLDER}/rpcbind.socket)" = /dev/null ] || echo portmapper:'
        exports = f"for f in {EXPORTS} {GANESHA}; do ! grep -qs bedplate $f || echo exports:$f; done"
        told = f"for f in {MOUNTS_TABLE} {SHELL} {NOTICE}; do [ ! -e $f ] || echo told:$f; done"
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


# What a server that is gone may hold up: then the guard takes it off.
_PATIENTLY = "timeout 60 systemctl stop"


def gone(attached: Iterable[Attached], wanted: frozenset[str], found: Found) -> Iterator[Due]:
    """Yield what is to be done about units of ours that nobody wants, and about paths with another source."""
    for path in sorted({path for unit, path in found.units.items() if path and unit not in wanted}):
        yield _taken_off(path, [unit for unit, at in found.units.items() if at == path and unit not in wanted], found)
    for unit in sorted(unit for unit, path in found.units.items() if not path and unit not in wanted):
        yield Due(f"No {unit}", _removed(unit))
    for each in attached:
        if found.sources.get(each.path, each.source) != each.source and each.asked:
            yield _moved(each, found)


def _taken_off(path: str, units: list[str], found: Found) -> Due:
    """Return how a path goes; while somebody uses it, only that it is to go."""
    if users := found.told_users(path):
        return Due(f"{path} is to go, and stays while it is used by {users}", ("true",))
    return Due(f"No {path} any more", tuple(command for unit in _triggers_first(units) for command in _removed(unit)))


def _moved(at: Attached, found: Found) -> Due:
    if users := found.told_users(at.path):
        return Due(f"{at.path} comes from {at.source} once it is not used any more by {users}", ("true",))
    return Due(f"{at.path} comes from {at.source}", (f"{_PATIENTLY} {quote(at.mount)}",))


def _triggers_first(units: list[str]) -> list[str]:
    return sorted(units, key=lambda unit: not unit.endswith(".automount"))


def _removed(unit: str) -> tuple[str, ...]:
    named, gone = quote(unit), f"rm -f {quote(f'{UNIT_FOLDER}/{unit}')} && systemctl daemon-reload"
    if "@." in unit:
        return (gone,)
    return (
        f"systemctl disable --quiet {named} 2>/dev/null; {_PATIENTLY} {named}",
        gone,
    )


# Version 4 of NFS needs neither: what listens and is not needed is closed.
_UNWANTED = ("rpcbind.service", "rpcbind.socket", "rpc-statd.service", "nfs-ganesha-lock.service")


@dataclass(frozen=True, slots=True)
class Storage(Role):
    """What a node mounts of others, what it exports to them, and the buckets that it reads, from its region.

    `holds_role`: AWS lends it credentials.
    """

    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    region: str = ""
    holds_role: bool = True
    name: ClassVar[str] = "storage"
    space: ClassVar[DiskSpace] = DiskSpace(programs=410, state=20, temporary=24)

    def install(self) -> None:
        """Install the client of NFS, the tunnel's program and the server, as far as the node needs them."""
        packages = (
            *(("nfs-common",) if self.mounts or self.shares else ()),
            *(("stunnel4",) if self._by_tunnel else ()),
            *(self._server.packages if self.shares else ()),
            *(PACKAGES if self.buckets else ()),
        )
        if packages:
            install("Programs of shared storage", packages)
        if self.buckets:
            install_aws()

    def configure(self) -> Changes:
        """Write units, tunnels and exports; homes that they would hide are moved aside before."""
        attached = tuple(self._attached())
        carry_out(hidden([each.path for each in attached], host.get_fact(OwnHomes) if attached else {}))
        for share in self.shares:
            if host.get_fact(Directory, path=share.path) is None:
                server.shell(name=f"Folder {share.path}", commands=[folder(share)])
        removed("Units of storage are as they are written", sorted(self._unit_names))
        return ship(*self._shipped())

    def activate(self, changes: Changes) -> None:
        """Put mounts where they are used, take off those that nobody wants, and let the server know."""
        changed = {each.path: change for each, change in zip(self._shipped(), changes, strict=False)}
        units = [change for path, change in changed.items() if path.startswith(UNIT_FOLDER)]
        if units:
            server.shell(name="Units of storage", commands=["systemctl daemon-reload"], _if=any_changed(*units))
        found = host.get_fact(Finding)
        carry_out(gone(tuple(self._attached()), self._unit_names, found))
        self._close(found)
        for mount in self._by_tunnel:
            conf, unit = tunnel(mount)
            if conf.path in changed:
                anew = f"{unit.what} begins anew"
                systemd.service(name=anew, service=unit.name, restarted=True, _if=any_changed(changed[conf.path]))
        keep_running({f"{name} runs": name for name in self._running()})
        if self.shares:
            serve(self._server, changed)

    @property
    def _by_tunnel(self) -> tuple[Mount, ...]:
        return tuple(mount for mount in self.mounts if mount.kind is MountKind.EFS)

    @property
    def _server(self) -> Server:
        return server_of(self.shares, by_kernel=host.get_fact(KernelServes))

    @property
    def _unit_names(self) -> frozenset[str]:
        return frozenset((*(unit.name for unit in self._units()), *(UNITS if self.mounts else ())))

    def _attached(self) -> Iterator[Attached]:
        yield from map(mounted, self.mounts)
        yield from map(shared, self.shares)

    def _units(self) -> Iterator[Unit]:
        for each in self._attached():
            yield from each.units()
        yield from (tunnel(mount)[1] for mount in self._by_tunnel)

    def _shipped(self) -> tuple[Shipped, ...]:
        """Return the files, of which a node without storage has none."""
        return (
            *(unit.shipped for unit in self._units()),
            *(tunnel(mount)[0] for mount in self._by_tunnel),
            *(guard(self._attached()) if self.mounts else ()),
            *(self._server.files if self.shares else ()),
            *(listed(self.buckets, self.region) if self.buckets else ()),
            *self._notices(),
        )

    def _notices(self) -> Iterator[Shipped]:
        paths = [each.path for each in self._attached()]
        if paths or self.buckets:
            yield notice(paths, self.buckets, holds_role=self.holds_role)

    def _running(self) -> Iterator[str]:
        yield from (tunnel(mount)[1].name for mount in self._by_tunnel)
        yield from ((TIMER, RELEASE) if self.mounts else ())
        yield from (each.trigger for each in self._attached())

    def _close(self, found: Found) -> None:
        """Close what version 4 of NFS does not need, and what is not served any more."""
        if found.portmapper and (self.mounts or self.shares):
            server.shell(name="No portmapper", commands=[f"systemctl mask --now --quiet {' '.join(_UNWANTED)}"])
        for path in found.exports if not self.shares else ():
            service = "nfs-server" if path == EXPORTS else "nfs-ganesha"
            ends = [f"rm -f {path}", f"systemctl disable --now --quiet {service}"]
            server.shell(name="Nothing is exported any more", commands=ends)
        for path in sorted(found.told - {each.path for each in self._shipped()}):
            server.shell(name=f"No {path} any more", commands=[f"rm -f {path}"])
