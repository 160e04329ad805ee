"""The role `storage`: what a node mounts and exports, as units that no lost server can hang."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.files import Directory
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.fleet import BucketPlan
from bedplate.plan.node import Mount, MountKind, Share
from roles.base import Changes, DiskSpace, Role
from roles.drop_ins import removed
from roles.due import carry_out
from roles.packages import install
from roles.running import keep_running
from roles.shipped import Shipped, ship
from roles.storage.attached import Attached, mounted, shared
from roles.storage.buckets import install_aws, listed
from roles.storage.exported import EXPORTS, KernelServes, Server, server_of
from roles.storage.found import Finding, Found
from roles.storage.gone import gone
from roles.storage.guard import RELEASE, TIMER, UNITS, guard
from roles.storage.hidden import OwnHomes, hidden
from roles.storage.notice import notice
from roles.storage.served import folder, serve
from roles.storage.tunnel import tunnel
from roles.storage.unit import FOLDER, Unit
from roles.venv import PACKAGES

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
        units = [change for path, change in changed.items() if path.startswith(FOLDER)]
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
