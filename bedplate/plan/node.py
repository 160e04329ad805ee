"""One machine as roles configure it: what it is, who may use it, what it mounts and whom it lets in."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.accounts import Accounts
from bedplate.plan.door import Rule
from bedplate.plan.fleet import BucketPlan
from bedplate.plan.laptops import LaptopGateway


class Ground(StrEnum):
    """Where a machine stands."""

    CLOUD = "cloud"
    METAL = "metal"


class Duty(StrEnum):
    """What a machine does for the fleet; it may have several duties, or none."""

    WORKBENCH = "workbench"
    WORKER = "worker"
    CONTROL = "control plane"
    LAPTOPS = "gateway of laptops"
    TUNNELS = "gateway of the site"
    JOINT = "gateway to other regions"
    FILES = "file server"


class MountKind(StrEnum):
    """How shared storage is mounted."""

    EFS = "efs"
    NFS = "nfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """Shared storage at a path: `server` is the name that resolves in the fleet, `export` the folder on it.

    `region` is the region of an EFS file system, by which its server proves itself.
    """

    store: str
    kind: MountKind
    server: str
    export: str
    path: str
    region: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A folder that the machine itself exports over NFS, and the blocks that may mount it."""

    store: str
    path: str
    mount: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of a machine: `model` as the fleet file or EC2 calls it."""

    model: str
    count: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A machine of the fleet; `name` is how operators call it, `titan-01.cellar`.

    `address` is None for a machine of a pool, whose address AWS decides. `hosts` holds every machine of a fixed
    address by its full name. `region` is its own, or the home region for a machine of a site.
    """

    fleet: str
    domain: str
    owner: str
    name: str
    ground: Ground
    duties: frozenset[Duty]
    region: str
    address: IPv4Address | None
    accounts: Accounts
    hosts: Mapping[str, IPv4Address]
    doors: tuple[Rule, ...]
    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    gpus: Hardware | None = None
    scratch: tuple[str, ...] = ()
    """The disks that /scratch is made of, where the file names some; a machine of the cloud finds its own."""
    expires: str | None = None
    laptops: LaptopGateway | None = None
    """The gateway of laptops that it is, where it is one."""
    elsewhere: tuple[IPv4Network, ...] = ()
    """The blocks that it leads to by tunnels, where it is a gateway of a site or to other regions."""

    @property
    def host(self) -> str:
        """Its host name, one label."""
        return self.name.partition(".")[0]

    @property
    def place(self) -> str:
        """The region or site that it stands in."""
        return self.name.partition(".")[2]

    @property
    def is_named_by_ec2(self) -> bool:
        """Whether its host name is the one that EC2 gave it: a cloud's worker is known to Kubernetes by no other."""
        return self.ground is Ground.CLOUD and Duty.WORKER in self.duties

    @property
    def full_name(self) -> str:
        """Its name with the fleet's domain."""
        return f"{self.name}.{self.domain}"
