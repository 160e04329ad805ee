"""Data sets in S3: AWS's own command line, of one version and by its sums, and a list of the buckets that a node reads.

mountpoint-s3 is in neither distribution's archive, and a bucket is no file system: programs stream from it or copy it
to local disks. Credentials are the node's role's, where it has one; none is ever written down.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.fleet import BucketPlan
from bedplate.plan.nodes import Mount, MountKind, Share
from roles.files import Shipped, rendered, ship, text_of
from roles.system import taken

FOLDER = "/opt/bedplate-aws"
TABLE, SHELL = "/etc/bedplate/buckets", "/etc/profile.d/bedplate-buckets.sh"
_WANTED = text_of("storage/aws.txt")
_LIST = f"{FOLDER}.txt"


class AwsVersion(FactBase[str]):
    """The version of the command line in its folder, nothing where there is none."""

    default = str

    def command(self) -> str:
        """Look at what was installed: to run it takes a second."""
        return f"ls -d {FOLDER}/lib/python3*/site-packages/awscli-*.dist-info 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> str:
        """Take the version out of the folder's name."""
        return next((line.rpartition("/awscli-")[2].removesuffix(".dist-info") for line in output), "")


def version() -> str:
    """Return the version that is wanted."""
    first = next(line for line in _WANTED.splitlines() if line.startswith("awscli=="))
    return first.split()[0].removeprefix("awscli==")


def install_aws() -> None:
    """Declare the command line for everybody."""
    ship(Shipped("AWS's command line by its sums", _LIST, _WANTED))
    if host.get_fact(AwsVersion) != version():
        server.shell(name=f"AWS's command line {version()}", commands=taken(FOLDER, _LIST))
    files.link(name="aws for everybody", path="/usr/local/bin/aws", target=f"{FOLDER}/bin/aws")


def variable(store: str) -> str:
    """Return the variable by which shells know a store's bucket."""
    return f"S3_{store.upper().replace('-', '_')}"


def variables(buckets: Iterable[BucketPlan]) -> tuple[tuple[str, str], ...]:
    """Return the variable and the name of each bucket, in the order of stores."""
    return tuple((variable(each.store), each.name) for each in _by_store(buckets))


def listed(buckets: Iterable[BucketPlan], region: str) -> tuple[Shipped, ...]:
    """Return the list of buckets, and what shells know of it."""
    rows = _by_store(buckets)
    shell = rendered("storage/buckets.sh.j2", known=variables(rows), region=region)
    return (
        Shipped("Buckets", TABLE, "".join(f"{each.store} s3://{each.name} {each.region}\n" for each in rows)),
        Shipped("Buckets for shells", SHELL, shell),
    )


def _by_store(buckets: Iterable[BucketPlan]) -> list[BucketPlan]:
    return sorted(buckets, key=lambda bucket: bucket.store)


# Beside the message of the day, which is another role's. Source: pam_motd(8), `motd_dir`.
NOTICE = "/etc/motd.d/bedplate-storage"


def notice(paths: Iterable[str], buckets: Iterable[BucketPlan], *, holds_role: bool) -> Shipped:
    """Return the notice; without a role a machine opens no bucket, and people bring credentials of their own."""
    rows = variables(buckets)
    width = max((len(name) for name, _ in rows), default=0)
    text = rendered("storage/motd.j2", folders=sorted(paths), rows=rows, width=width, holds_role=holds_role)
    return Shipped("Notice of storage", NOTICE, text)


UNIT_FOLDER = "/etc/systemd/system"
MARK = "# Written by bedplate, role storage."
_PLAIN = re.compile(r"[A-Za-z0-9:_.]")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit; `what` is how an operator is told of it."""

    what: str
    name: str
    text: str

    @property
    def shipped(self) -> Shipped:
        """The file that it is."""
        return Shipped(self.what, f"{UNIT_FOLDER}/{self.name}", f"{MARK}\n{self.text}")


def unit_name(path: str, suffix: str) -> str:
    r"""Return how systemd calls the unit of a path: `/mnt/lab-data` is `mnt-lab\x2ddata.mount` (systemd-escape(1))."""
    parts = path.strip("/").split("/")
    return "-".join(_escaped(part) for part in parts) + f".{suffix}"


def _escaped(part: str) -> str:
    text = "".join(each if _PLAIN.fullmatch(each) else f"\\x{ord(each):02x}" for each in part)
    return f"\\x2e{text[1:]}" if text.startswith(".") else text


TUNNEL_FOLDER = "/etc/bedplate/efs"


def loopback(store: str) -> str:
    """Return the address of this machine on which a store's tunnel begins: by its name, so that no other moves it."""
    high, middle, low = sha256(store.encode()).digest()[:3]
    return f"127.{high or 1}.{middle}.{low % 254 + 1}"


def tunnel(mount: Mount) -> tuple[Shipped, Unit]:
    """Return the configuration of a mount's tunnel, and the unit that runs it."""
    path = f"{TUNNEL_FOLDER}/{mount.store}.conf"
    # EFS proves itself by a certificate for every name below its region's.
    proof = f"{mount.store}.efs.{mount.region}.amazonaws.com"
    text = rendered("storage/stunnel.conf.j2", mount=mount, begins=loopback(mount.store), proof=proof)
    unit = rendered("storage/tunnel.service.j2", mount=mount, path=path)
    return Shipped(f"TLS to {mount.store}", path, text), Unit(
        f"Tunnel to {mount.store}", f"bedplate-efs-{mount.store}.service", unit
    )


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
