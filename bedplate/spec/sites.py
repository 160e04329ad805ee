"""The sections of the fleet file about physical sites and shared storage."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Literal, assert_never

from pydantic import Field

from bedplate.spec.base import (
    ADDED,
    BOTH,
    CHANGED,
    EVERY,
    MOVE_DATA,
    RELEASE,
    REMOVED,
    Spec,
    Table,
    entries,
    free,
    on_edit,
    refused,
    replaces,
)
from bedplate.spec.network import Address, Block
from bedplate.spec.text import DiskName, DomainName, DriverBranch, HostLabel, MountPath, RegionName, RoleArn, Slug

# Route 53 quotas, targets per resolver rule, 2026-11.
MOST_SERVERS = 6

_CUSTOMER_GATEWAY = "the customer gateway; tunnels are down while AWS replaces it"
_NEXT_APPLY = "the machine, at its next apply"
_NFS_MOUNT = "the mount on nodes, at their next apply"
JOBS = "where `bp run` starts jobs; running ones stay"
_DATA = "stores with data are protected"


class Use(StrEnum):
    """The use of a machine. Code decides by its properties, or in a `match` that mypy checks for completeness."""

    SSH = "ssh"
    KUBERNETES = "kubernetes"

    @property
    def is_ssh(self) -> bool:
        """Whether people log in to the machine, by a name that it keeps."""
        match self:
            case Use.SSH:
                return True
            case Use.KUBERNETES:
                return False

    @property
    def is_worker(self) -> bool:
        """Whether the machine is a worker of the Kubernetes cluster."""
        match self:
            case Use.SSH:
                return False
            case Use.KUBERNETES:
                return True


class Dials(StrEnum):
    """Which end opens a tunnel; the other end waits."""

    SITE = "site"
    AWS = "aws"


class Gpus(Spec):
    """The GPUs of a physical machine."""

    model: Slug = Field(
        title="GPU model",
        examples=["titan-x"],
        description="Model of the GPUs, such as titan-x or a100.",
        json_schema_extra=on_edit(free(_NEXT_APPLY)),
    )
    count: int = Field(
        ge=1,
        le=16,
        title="Number of GPUs",
        description="Number of GPUs in the machine.",
        json_schema_extra=on_edit(free(_NEXT_APPLY)),
    )


class Machine(Spec):
    """A physical machine on a site's LAN."""

    address: Address = Field(
        title="Address",
        description="Fixed IPv4 address on the site's LAN.",
        json_schema_extra=on_edit(free("its DNS name; firewalls of other nodes, at their next apply")),
    )
    gpus: Gpus | None = Field(
        default=None,
        title="GPUs",
        description="Model and number of GPUs, if it has any.",
        json_schema_extra=on_edit(free(_NEXT_APPLY, *BOTH)),
    )
    use: Use | None = Field(
        default=None,
        strict=False,
        title="Use",
        description="ssh (people log in), kubernetes (a worker), or left out (a server of the site).",
        json_schema_extra=on_edit(free("the machine and the firewalls of its peers, at their next apply", *EVERY)),
    )
    driver: DriverBranch | None = Field(
        default=None,
        title="Driver branch",
        description="NVIDIA driver branch, quoted, such as '580'. Default: that of the fleet's image.",
        json_schema_extra=on_edit(free("the machine, at its next apply while no program uses a GPU", *EVERY)),
    )
    mig: bool = Field(
        default=False,
        title="MIG",
        description="Whether people split its GPUs into instances (MIG). Else the health gate asks to disable MIG.",
        json_schema_extra=on_edit(free(_NEXT_APPLY)),
    )
    frameworks: bool | None = Field(
        default=None,
        title="Frameworks",
        description="For use ssh: whether PyTorch is installed for all users. Default: on GPUs that it supports.",
        json_schema_extra=on_edit(free(_NEXT_APPLY, *EVERY)),
    )
    jobs: bool = Field(
        default=True,
        title="Jobs",
        description="Whether people run jobs on it with `bp run`, if it has a `use`.",
        json_schema_extra=on_edit(free(JOBS)),
    )
    scratch: tuple[DiskName, ...] = Field(
        default=(),
        title="Scratch",
        description="Disks for one volume at /scratch, for data that may be lost. bedplate formats blank disks only.",
        json_schema_extra=on_edit(free("the volume, at the next apply; mounted disks stay until a reboot", *EVERY)),
    )

    @property
    def is_ssh(self) -> bool:
        """Whether people log in to the machine."""
        return self.use is not None and self.use.is_ssh

    @property
    def is_worker(self) -> bool:
        """Whether the machine is a worker of the Kubernetes cluster."""
        return self.use is not None and self.use.is_worker


class Gateway(Spec):
    """The end of a site's tunnels: an AWS customer gateway."""

    machine: HostLabel = Field(
        title="Machine",
        description="Name of the site's machine that is the gateway.",
        json_schema_extra=on_edit(replaces(_CUSTOMER_GATEWAY)),
    )
    public: Address = Field(
        title="Public address",
        examples=["8.20.30.40"],
        description="Fixed public IPv4 address of the gateway.",
        json_schema_extra=on_edit(replaces(_CUSTOMER_GATEWAY)),
    )
    asn: int = Field(
        ge=1,
        le=4294967294,
        title="ASN",
        description="BGP autonomous system number of the site. AWS's side is 64512.",
        json_schema_extra=on_edit(replaces(_CUSTOMER_GATEWAY)),
    )
    dials: Dials = Field(
        default=Dials.SITE,
        strict=False,
        title="Tunnel initiator",
        description="Which end opens the tunnels: site (the gateway, which may then be behind NAT) or aws.",
        json_schema_extra=on_edit(free("tunnel options; each tunnel is down for minutes, one after the other")),
    )
    behind_nat: bool = Field(
        default=False,
        title="Behind NAT",
        description="Whether NAT blocks incoming connections to the gateway: it opens all tunnels itself.",
        json_schema_extra=on_edit(free("which of two gateways opens their tunnel, after `bedplate vpn tunnels`")),
    )
    joins: tuple[Slug, ...] = Field(
        default=(),
        title="Connected sites",
        description="Other sites with a direct tunnel to this gateway, not through AWS. List it at one of the two.",
        json_schema_extra=on_edit(
            free("nothing: the order has no meaning", CHANGED),
            free("nothing in AWS; `bedplate vpn tunnels` adds or removes the tunnel", *BOTH),
        ),
    )


class NameServers(Spec):
    """The name servers of a site's own domain; the fleet's regions forward queries to them."""

    domain: DomainName = Field(
        title="Domain",
        description="The site's own domain. Regions forward all names in it.",
        json_schema_extra=on_edit(replaces("the forwarding rule")),
    )
    servers: tuple[Address, ...] = Field(
        min_length=1,
        max_length=MOST_SERVERS,
        title="Servers",
        description="Addresses on the site's LAN that answer for the domain, on UDP and TCP port 53.",
        json_schema_extra=on_edit(free("the targets of the forwarding rule", *EVERY)),
    )


class Site(Spec):
    """Existing networks with a gateway and machines."""

    lan: Block | None = Field(
        default=None,
        title="LAN",
        examples=["192.168.40.0/24"],
        description="The block of a site with one network. No allocated block may overlap it.",
        json_schema_extra=on_edit(
            refused("the lock records the old block of the site", RELEASE),
            free("nothing, if `lans` then has the same block first, or had it", *BOTH),
        ),
    )
    lans: tuple[Block, ...] = Field(
        default=(),
        min_length=1,
        title="LANs",
        examples=[["192.168.40.0/24", "192.168.60.0/24"]],
        description="The blocks of a site with several networks, instead of `lan`. The first one stays the first.",
        json_schema_extra=on_edit(free("routes and firewall rules; then run `bedplate vpn tunnels`", *EVERY)),
    )
    gateway: Gateway = Field(title="Gateway", description="The end of the site's tunnels to the regions.")
    machines: Table[HostLabel, Machine] = Field(
        default_factory=dict,
        validate_default=True,
        title="Machines",
        description="The site's machines, by host name.",
        json_schema_extra=on_edit(free("its DNS name; firewalls of other nodes, at their next apply", *BOTH)),
    )
    dns: NameServers | None = Field(
        default=None,
        title="Name servers",
        description="A domain that the site's own name servers answer for.",
        json_schema_extra=on_edit(entries("forwarding", "forwarding: regions no longer resolve the site's domain")),
    )

    @property
    def networks(self) -> Mapping[str, IPv4Network]:
        """The blocks of the site by the keys that have them."""
        return {"lan": self.lan} if self.lan else {f"lans.{index}": lan for index, lan in enumerate(self.lans)}


class Clients(StrEnum):
    """Which machines may mount an NFS export."""

    MACHINES = "machines"
    LAN = "lan"


class EfsStore(Spec):
    """An EFS file system, mounted by the fleet's nodes."""

    kind: Literal["efs"] = Field(
        title="Kind",
        description="efs: a file system in one region.",
        json_schema_extra=on_edit(refused(_DATA, MOVE_DATA)),
    )
    region: RegionName = Field(
        title="Region",
        description="Region of the data.",
        json_schema_extra=on_edit(refused(_DATA, MOVE_DATA)),
    )
    mount: MountPath = Field(
        title="Mount point",
        description="Mount point on cloud nodes.",
        json_schema_extra=on_edit(free(_NFS_MOUNT)),
    )


class S3Store(Spec):
    """An S3 bucket in each listed region."""

    kind: Literal["s3"] = Field(
        title="Kind",
        description="s3: object storage, one bucket per region.",
        json_schema_extra=on_edit(refused(_DATA, MOVE_DATA)),
    )
    regions: tuple[RegionName, ...] = Field(
        min_length=1,
        title="Regions",
        description="Regions with a bucket. The first holds the source of the copies.",
        json_schema_extra=on_edit(
            replaces("which bucket is the source; only new objects are copied", CHANGED),
            free("a bucket for new objects; docs/aws-account.md copies existing objects", ADDED),
            refused(_DATA, MOVE_DATA, REMOVED),
        ),
    )
    expire_days: int | None = Field(
        default=None,
        ge=1,
        le=36500,
        title="Expiry",
        description="Days until an object is deleted. Default: never.",
        json_schema_extra=on_edit(free("older objects are deleted within a day", *EVERY)),
    )
    readers: tuple[RoleArn, ...] = Field(
        default=(),
        title="Readers",
        description="Roles of this account that may read, in addition to the fleet's nodes. Their own policies must "
        "allow it too.",
        json_schema_extra=on_edit(free("additional readers, at once", *EVERY)),
    )


class NfsStore(Spec):
    """A folder that a machine of a site exports over NFS."""

    kind: Literal["nfs"] = Field(
        title="Kind",
        description="nfs: an export of a physical machine.",
        json_schema_extra=on_edit(refused(_DATA, MOVE_DATA)),
    )
    site: Slug = Field(
        title="Site",
        examples=["office"],
        description="A site of this file.",
        json_schema_extra=on_edit(free(_NFS_MOUNT)),
    )
    machine: HostLabel = Field(
        title="Machine",
        description="The site's machine that exports the folder.",
        json_schema_extra=on_edit(free(_NFS_MOUNT)),
    )
    export: MountPath = Field(
        title="Export",
        description="The exported folder on that machine.",
        json_schema_extra=on_edit(free(_NFS_MOUNT)),
    )
    mount: MountPath = Field(
        title="Mount point",
        description="Mount point on the site's machines.",
        json_schema_extra=on_edit(free(_NFS_MOUNT)),
    )
    clients: Clients = Field(
        default=Clients.MACHINES,
        strict=False,
        title="Clients",
        description="Hosts that may mount it: machines (the site's machines with a `use`) or lan (every address on the "
        "LAN; root there can act as any user except root).",
        json_schema_extra=on_edit(free("the exports of the file server, at its next apply")),
    )


Store = Annotated[EfsStore | S3Store | NfsStore, Field(discriminator="kind")]


def cloud_mounts(storage: Mapping[str, Store]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the region and the mount point of each store that nodes in AWS mount."""
    for name, store in storage.items():
        match store:
            case EfsStore():
                yield name, store.region, store.mount
            case S3Store() | NfsStore():
                pass
            case _:
                assert_never(store)
