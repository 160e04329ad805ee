"""The role `storage`: mounts, exports and buckets of a node, and the removal of former ones.

Mounts are systemd units, and a guard unmounts file systems whose server has failed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Directory
from pyinfra.operations import server, systemd

from bedplate.plan.fleet import PEOPLE_IDS
from bedplate.plan.mounts import Mount, MountKind, Share
from bedplate.plan.stores import BucketPlan
from roles.base import Changes, DiskSpace, ManagedFile, PendingChange, Role, changed, file_text, put_files, run_changes
from roles.storage.mounts import (
    EXPORTS,
    GANESHA,
    MARK,
    NOTICE,
    SHELL,
    UNIT_FOLDER,
    Attached,
    KernelServes,
    Server,
    Unit,
    bind_mount,
    bucket_files,
    client_mount,
    create_folder,
    create_tunnel_user,
    install_aws,
    notice,
    run_server,
    server_of,
    tunnel,
)
from roles.storage.mounts import TABLE as BUCKETS_TABLE
from roles.system import PACKAGES, install_packages, remove_drop_ins, start_units

MOVED_HOMES = "/var/lib/bedplate/home"


class LocalHomes(FactBase[Mapping[str, tuple[int, str]]]):
    """The id and home of each local account, by name."""

    default = dict

    def command(self) -> str:
        """Read /etc/passwd."""
        return "cut -d: -f1,3,6 /etc/passwd"

    def process(self, output: Iterable[str]) -> Mapping[str, tuple[int, str]]:
        """Parse the lines; blank lines and NIS entries are skipped."""
        rows = (line.split(":") for line in output)
        return {name: (int(uid), home) for name, uid, home in filter(_is_account, rows)}


def _is_account(fields: Sequence[str]) -> bool:
    return len(fields) == 3 and fields[1].isdecimal()  # noqa: PLR2004  name, id and home


def move_hidden_homes(paths: Collection[str], homes: Mapping[str, tuple[int, str]]) -> Iterator[PendingChange]:
    """Yield the moves of homes that a mount would hide: copy the home, which may be in use, and edit /etc/passwd."""
    for name, (uid, home) in homes.items():
        if uid not in PEOPLE_IDS and any(home.startswith(f"{path}/") for path in paths):
            new = f"{MOVED_HOMES}/{name}"
            copy_home = f"if [ -d {quote(home)} ]; then cp -a {quote(home)} {new} && chmod o= {new}; fi"
            copy = f"install -d -m 755 {MOVED_HOMES} && rm -rf {new} && {copy_home}"
            line = rf"s|^({name}:[^:]*:{uid}:[^:]*:[^:]*):{home}:|\1:{new}:|"
            # usermod refuses an account with processes, such as the operator's. vipw uses the same lock, and ignores a
            # second edit within one second.
            edit = f"sleep 1 && EDITOR={quote(f'sed -i -E {quote(line)}')} vipw --quiet"
            check = f"grep -q {quote(f'^{name}:.*:{new}:')} /etc/passwd"
            yield PendingChange(f"Move home of {name} from {home}", (copy, f"{edit} && {check}"))


SCRIPT = "/usr/local/sbin/bedplate-storage-guard"
TABLE = "/etc/bedplate/mounts"
TIMER, RELEASE, ANSWERS = (
    "bedplate-storage-guard.timer",
    "bedplate-storage-release.service",
    "bedplate-answers@.service",
)
UNITS = (TIMER, "bedplate-storage-guard.service", RELEASE, ANSWERS)


def guard(attached: Iterable[Attached]) -> Iterator[ManagedFile]:
    """Yield the mount guard, its units, and the table of its mounts."""
    rows = sorted(f"{mount.store} {mount.path} {mount.server}\n" for mount in attached if mount.server)
    yield ManagedFile("Write the table of mounts", TABLE, "".join(rows))
    yield ManagedFile(f"Write {SCRIPT}", SCRIPT, file_text("storage/bedplate-storage-guard"), "755")
    for name in UNITS:
        yield ManagedFile(f"Write {name}", f"{UNIT_FOLDER}/{name}", f"{MARK}\n{file_text(f'storage/{name}')}")


@dataclass(frozen=True, slots=True)
class StorageState:
    """Our units by name, with the path of each mount; sources and users of the mounted file systems, by path.

    `portmapper`: rpcbind is not masked. `exports`: the export files that bedplate wrote. `notices`: the files that
    inform users about storage.
    """

    units: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    portmapper: bool = False
    exports: frozenset[str] = frozenset()
    notices: frozenset[str] = frozenset()

    def describe_users(self, path: str) -> str:
        """Return the programs and users that use a path, empty if there are none."""
        users = self.users.get(path, ())
        more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
        return ", ".join(users[:_SHOWN]) + more


_SHOWN = 3
# Reads the links in /proc without following them: their targets may hang.
_USERS = (
    "find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd -maxdepth 1"
    ' \\( -lname "$path" -o -lname "$path/*" \\) -printf "%p\\n" 2>/dev/null | cut -d/ -f3 | sort -un'
    ' | while read -r pid; do echo "user:$path:$(ps -o user=,comm= -p "$pid" | tr -s " ")"; done'
)


class ReadStorage(FactBase[StorageState]):
    """The storage state, in one query."""

    default = StorageState

    def command(self) -> str:
        """Read unit files, mounts and processes."""
        units = f"cd {UNIT_FOLDER} && for unit in $(grep -lsxF '{MARK}' *.mount *.automount *.service *.timer)"
        path = 'path="$(sed -n s/^Where=//p "$unit")"; echo "unit:$unit:$path"'
        users = f'case "$unit" in *.mount) {_USERS};; esac'
        sources = r"""sed -nE 's/^([^ ]+ ){4}([^ ]+) .* - ([^ ]+) ([^ ]+) .*/source:\2:\3:\4/p' /proc/self/mountinfo"""
        masked = f'[ "$(readlink {UNIT_FOLDER}/rpcbind.socket)" = /dev/null ] || echo portmapper:'
        exports = f"for f in {EXPORTS} {GANESHA}; do ! grep -qs bedplate $f || echo exports:$f; done"
        notices = f"for f in {BUCKETS_TABLE} {SHELL} {NOTICE}; do [ ! -e $f ] || echo told:$f; done"
        return f"{units}; do {path}; {users}; done; {sources}; {masked}; {exports}; {notices}"

    def process(self, output: Iterable[str]) -> StorageState:
        """Parse the lines by their prefix; of two mounts at a path the upper one comes last."""
        rows: dict[str, list[str]] = {}
        for line in output:
            kind, _, rest = line.partition(":")
            rows.setdefault(kind, []).append(rest)
        return StorageState(
            units=dict(_split_rows(rows.get("unit", ()))),
            sources=_sources(rows.get("source", ())),
            users=_users(rows.get("user", ())),
            portmapper="portmapper" in rows,
            exports=frozenset(rows.get("exports", ())),
            notices=frozenset(rows.get("told", ())),
        )


def _split_rows(rows: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((name, rest) for name, _, rest in (row.partition(":") for row in rows))


def _sources(rows: Iterable[str]) -> Mapping[str, str]:
    """Return the source mounted at each path; automounts that have mounted nothing are skipped."""
    return {path: source for path, kind, source in (row.split(":", 2) for row in rows) if kind != "autofs"}


def _users(rows: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the users of each path, each as `program user`."""
    users: dict[str, tuple[str, ...]] = {}
    for path, user in _split_rows(rows):
        users[path] = (*users.get(path, ()), " ".join(reversed(user.split())))
    return users


# A failed server may block it until the guard unmounts the file system.
_STOP = "timeout 60 systemctl stop"


def remove_former(
    attached: Iterable[Attached], planned: frozenset[str], state: StorageState
) -> Iterator[PendingChange]:
    """Yield the removal of our former units, and the unmount of paths with another source."""
    former = {unit: path for unit, path in state.units.items() if unit not in planned}
    for path in sorted({path for path in former.values() if path}):
        yield _unmount(path, [unit for unit, unit_path in former.items() if unit_path == path], state)
    for unit in sorted(unit for unit, path in former.items() if not path):
        yield PendingChange(f"Remove {unit}", _remove_unit(unit))
    for mount in attached:
        if state.sources.get(mount.path, mount.source) != mount.source and mount.server:
            yield _change_source(mount, state)


def _unmount(path: str, units: list[str], state: StorageState) -> PendingChange:
    """Return the removal of a mount; if it is in use, an operation that only reports it."""
    if users := state.describe_users(path):
        return PendingChange(f"Keep {path} mounted: in use by {users}", ("true",))
    triggers_first = sorted(units, key=lambda unit: not unit.endswith(".automount"))
    commands = tuple(command for unit in triggers_first for command in _remove_unit(unit))
    return PendingChange(f"Unmount {path}", commands)


def _change_source(mount: Attached, state: StorageState) -> PendingChange:
    if users := state.describe_users(mount.path):
        return PendingChange(f"Keep the old source of {mount.path}: in use by {users}", ("true",))
    return PendingChange(f"Mount {mount.path} from {mount.source}", (f"{_STOP} {quote(mount.mount)}",))


def _remove_unit(unit: str) -> tuple[str, ...]:
    name, remove = quote(unit), f"rm -f {quote(f'{UNIT_FOLDER}/{unit}')} && systemctl daemon-reload"
    if "@." in unit:
        return (remove,)
    return (
        f"systemctl disable --quiet {name} 2>/dev/null; {_STOP} {name}",
        remove,
    )


# Network services that NFSv4 does not need.
_UNNEEDED = ("rpcbind.service", "rpcbind.socket", "rpc-statd.service", "nfs-ganesha-lock.service")


@dataclass(frozen=True, slots=True)
class Storage(Role):
    """The mounts, shares and buckets of a node in a region.

    `holds_role`: the node has an IAM role, which gives it AWS credentials.
    """

    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    region: str = ""
    holds_role: bool = True
    name: ClassVar[str] = "storage"
    space: ClassVar[DiskSpace] = DiskSpace(programs=410, state=20, temporary=24)

    def install(self) -> None:
        """Install the NFS client, stunnel with its user, and the AWS CLI, if the node needs them."""
        packages = (
            *(("nfs-common",) if self.mounts or self.shares else ()),
            *(("stunnel4",) if self._by_tunnel else ()),
            *(PACKAGES if self.buckets else ()),
        )
        if packages:
            install_packages("Install packages of shared storage", packages)
        if self._by_tunnel:
            create_tunnel_user()
        if self.buckets:
            install_aws()

    def configure(self) -> Changes:
        """Write units, tunnels and exports, after moving local homes that a mount would hide.

        The NFS server depends on the node's kernel, so it is installed here.
        """
        if self.shares:
            install_packages("Install the NFS server", self._server.packages)
        attached = tuple(self._attached())
        homes = host.get_fact(LocalHomes) if attached else {}
        run_changes(move_hidden_homes([mount.path for mount in attached], homes))
        for share in self.shares:
            if host.get_fact(Directory, path=share.path) is None:
                server.shell(name=f"Create {share.path}", commands=[create_folder(share)])
        remove_drop_ins("Remove drop-ins of storage units", sorted(self._unit_names))
        return put_files(*self._files())

    def activate(self, changes: Changes) -> None:
        """Remove former mounts, start tunnels, mounts and the guard, and start the NFS server."""
        state = host.get_fact(ReadStorage)
        run_changes(remove_former(tuple(self._attached()), self._unit_names, state))
        self._close(state)
        for mount in self._by_tunnel:
            conf, unit = tunnel(mount)
            restart, written = f"Restart the TLS tunnel to {mount.store}", changed(changes, conf.path, unit.file.path)
            systemd.service(name=restart, service=unit.name, restarted=True, _if=written)
        start_units({f"Start {name}": name for name in self._running()})
        if self.shares:
            run_server(self._server, changes)

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
        yield from map(client_mount, self.mounts)
        yield from map(bind_mount, self.shares)

    def _units(self) -> Iterator[Unit]:
        for mount in self._attached():
            yield from mount.units()
        yield from (tunnel(mount)[1] for mount in self._by_tunnel)

    def _files(self) -> tuple[ManagedFile, ...]:
        """Return all files of the role; none on a node without storage."""
        return (
            *(unit.file for unit in self._units()),
            *(tunnel(mount)[0] for mount in self._by_tunnel),
            *(guard(self._attached()) if self.mounts else ()),
            *(self._server.files if self.shares else ()),
            *(bucket_files(self.buckets, self.region) if self.buckets else ()),
            *self._notices(),
        )

    def _notices(self) -> Iterator[ManagedFile]:
        paths = [mount.path for mount in self._attached()]
        if paths or self.buckets:
            yield notice(paths, self.buckets, holds_role=self.holds_role)

    def _running(self) -> Iterator[str]:
        yield from (tunnel(mount)[1].name for mount in self._by_tunnel)
        yield from ((TIMER, RELEASE) if self.mounts else ())
        yield from (mount.trigger for mount in self._attached())

    def _close(self, state: StorageState) -> None:
        """Disable services that NFSv4 does not need, former exports and former notices."""
        if state.portmapper and (self.mounts or self.shares):
            server.shell(name="Mask rpcbind", commands=[f"systemctl mask --now --quiet {' '.join(_UNNEEDED)}"])
        for path in state.exports if not self.shares else ():
            service = "nfs-server" if path == EXPORTS else "nfs-ganesha"
            stop = [f"rm -f {path}", f"systemctl disable --now --quiet {service}"]
            server.shell(name=f"Stop {service}", commands=stop)
        for path in sorted(state.notices - {file.path for file in self._files()}):
            server.shell(name=f"Remove {path}", commands=[f"rm -f {path}"])
