"""Storage that is attached at a path, as units: on the first use, never at boot, and only while its server answers.

A mount is hard: what runs waits for a server that restarts, and loses nothing. `Guard` sets the limit of that.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.plan.node import Mount, MountKind, Share
from roles.storage.tunnel import loopback
from roles.storage.unit import Unit, unit_name
from roles.template import rendered

NFS_PORT = 2049
HOMES = "/home"
# AWS's own advice for EFS, and version 4.2 where both ends are Linux. `noresvport`: a client that reconnects by another
# port keeps its locks. A site's server takes reserved ports alone: by others, whoever runs a program of his own on a
# client would be whom he likes. Source: EFS user guide, "Recommended NFS mount settings"; nfs(5); exports(5), `secure`.
_COMMON = "hard,proto=tcp,timeo=600,retrans=2,nosuid,nodev,_netdev"
_OPTIONS = {
    MountKind.EFS: f"vers=4.1,rsize=1048576,wsize=1048576,noresvport,{_COMMON}",
    MountKind.NFS: f"vers=4.2,nconnect=4,{_COMMON}",
}


@dataclass(frozen=True, slots=True)
class Attached:
    """Something at a path: `source` and `kind` as mount(8) takes them, `asked` who must answer first, if anybody.

    `opener` is the unit that lets everybody write to it once it is mounted, where its server does not.
    """

    store: str
    path: str
    source: str
    kind: str
    options: str
    asked: str | None = None
    tunnel: str | None = None
    opener: str | None = None

    @property
    def mount(self) -> str:
        """The name of the unit that mounts it."""
        return unit_name(self.path, "mount")

    @property
    def trigger(self) -> str:
        """The name of the unit that is there from boot: of a remote one, what waits for the first use."""
        return unit_name(self.path, "automount") if self.asked else self.mount

    def units(self) -> Iterator[Unit]:
        """Yield its units."""
        yield Unit(f"Mount {self.path}", self.mount, rendered("storage/mount.j2", at=self, port=NFS_PORT))
        if self.asked:
            text = rendered("storage/automount.j2", at=self)
            yield Unit(f"Mount {self.path} at its first use", self.trigger, text)
        if self.opener:
            yield Unit(f"Everybody writes to {self.path}", self.opener, rendered("storage/commons.j2", at=self))


def mounted(mount: Mount) -> Attached:
    """Return shared storage as it is attached to a machine that uses it."""
    by_tunnel = mount.kind is MountKind.EFS
    end = loopback(mount.store) if by_tunnel else mount.server
    return Attached(
        store=mount.store,
        path=mount.path,
        source=f"{end}:{mount.export}",
        kind="nfs4",
        options=_OPTIONS[mount.kind],
        asked=mount.server,
        tunnel=f"bedplate-efs-{mount.store}.service" if by_tunnel else None,
        # AWS makes the top folder root's alone; homes stay root's to make.
        opener=f"bedplate-commons-{mount.store}.service" if by_tunnel and mount.path != HOMES else None,
    )


def shared(share: Share) -> Attached:
    """Return a folder as the machine that exports it has it itself: at the same path as everybody else."""
    return Attached(share.store, share.mount, share.path, "none", "bind")
