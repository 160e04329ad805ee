"""The role `storage` on a node in memory: two mounts, a share, and what is found of them."""

from bedplate.plan.node import Mount, MountKind, Share
from roles.storage.role import Storage
from tests.support.disk import Disk
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Played, Recorder

HOME = Mount("cellar-home", MountKind.NFS, "nas.cellar.lab.internal", "/srv/home", "/home")
CLOUD = Mount("home", MountKind.EFS, "home.files.us-west-2.lab.internal", "/", "/home", "us-west-2")
SHARE = Share("cellar-home", "/srv/home", "/home", ("192.168.40.0/22",))
FOUND = "roles.storage.found.Finding"
NOTHING: dict[str, tuple[str, ...] | None] = {
    "roles.running.States": None,
    "roles.storage.exported.KernelServes": ("yes",),
    "roles.storage.hidden.OwnHomes": ("root:0:/root", "ubuntu:1000:/home/ubuntu", "ada:20000:/home/ada"),
    "roles.shipped.Marks": None,
}


def played(role: Storage, distribution: str = "debian-12", found: tuple[str, ...] = ("portmapper:",)) -> Played:
    """Run the role's last two stages on a node that has nothing of it but what was found."""
    table: Recorded = recorded(distribution).but({**NOTHING, FOUND: found})
    return Recorder(table, Disk.of({})).play(role, stages=("configure", "activate"))
