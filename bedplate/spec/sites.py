"""A room of physical machines, and the gateway by which it joins the fleet."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bedplate.spec.address import Address, Block
from bedplate.spec.base import Spec, Table
from bedplate.spec.text import DiskName, DomainName, HostLabel, MountPath, RegionName, RoleArn, Slug

# Route 53 Resolver takes no more targets in a rule (Route 53 quotas, 2026-11).
MOST_SERVERS = 6


class Use(StrEnum):
    """What a machine is for."""

    SSH = "ssh"
    KUBERNETES = "kubernetes"


class Dials(StrEnum):
    """Which end of a tunnel opens it; the other waits, or both would build it at once."""

    SITE = "site"
    AWS = "aws"


class Gpus(Spec):
    """The GPUs in a physical machine."""

    model: Slug = Field(title="GPU model", description="Model of the GPUs, such as titan-x or a100.")
    count: int = Field(ge=1, le=16, title="Number of GPUs", description="How many GPUs the machine holds.")


class Machine(Spec):
    """A physical machine on a site's LAN."""

    address: Address = Field(title="Address", description="Its fixed IPv4 address on the site's LAN.")
    gpus: Gpus | None = Field(default=None, title="GPUs", description="Its GPUs, where it has any.")
    use: Use | None = Field(
        default=None,
        strict=False,
        title="Use",
        description="ssh: people log in for ad-hoc work; kubernetes: a worker; left out: it serves the site.",
    )
    scratch: tuple[DiskName, ...] = Field(
        default=(),
        title="Scratch",
        description="Disks for work that may be lost, as one at /scratch; only blank ones are ever written to.",
    )


class Gateway(Spec):
    """The machine at which a site's tunnels end: an AWS customer gateway."""

    machine: HostLabel = Field(title="Machine", description="Name of the site's machine that is the gateway.")
    public: Address = Field(title="Public address", description="The gateway's fixed public IPv4 address.")
    asn: int = Field(
        ge=1,
        le=4294967294,
        title="ASN",
        description="The site's BGP autonomous system number; AWS's own side is 64512.",
    )
    dials: Dials = Field(
        default=Dials.SITE,
        strict=False,
        title="Who dials",
        description="Who opens the tunnels: site (the gateway, which may then sit behind address translation) or aws.",
    )
    behind_nat: bool = Field(
        default=False,
        title="Behind address translation",
        description="It stands behind translation that hands it nobody's first packet: it dials, and is never dialled.",
    )
    joins: tuple[Slug, ...] = Field(
        default=(),
        title="Joined sites",
        description="Other sites to which this gateway has a tunnel of its own, not by AWS; said at either of the two.",
    )


class NameServers(Spec):
    """Who knows the names of a site's own domain: the fleet's regions ask there."""

    domain: DomainName = Field(title="Domain", description="The site's own domain; all names under it are asked there.")
    servers: tuple[Address, ...] = Field(
        min_length=1,
        max_length=MOST_SERVERS,
        title="Servers",
        description="Addresses on the site's LAN that answer for the domain, over UDP and TCP on port 53.",
    )


class Site(Spec):
    """A LAN that exists already, its gateway and its machines."""

    lan: Block = Field(title="LAN", description="The site's own block; nothing that is allotted may touch it.")
    gateway: Gateway = Field(title="Gateway", description="Where the site's tunnels to the regions end.")
    machines: Table[HostLabel, Machine] = Field(
        default_factory=dict,
        validate_default=True,
        title="Machines",
        description="The site's machines by host name.",
    )
    dns: NameServers | None = Field(
        default=None,
        title="Name servers",
        description="A domain of the site's own, which every region then asks the site's servers for.",
    )


class Clients(StrEnum):
    """Who may mount the export of a site's machine."""

    MACHINES = "machines"
    LAN = "lan"


class EfsStore(Spec):
    """An EFS file system, mounted by the fleet's nodes."""

    kind: Literal["efs"] = Field(title="Kind", description="efs: a file system in one region.")
    region: RegionName = Field(title="Region", description="The region that holds the data.")
    mount: MountPath = Field(title="Mount point", description="Where cloud nodes mount it.")


class S3Store(Spec):
    """One S3 bucket in each listed region."""

    kind: Literal["s3"] = Field(title="Kind", description="s3: object storage, one bucket a region.")
    regions: tuple[RegionName, ...] = Field(
        min_length=1, title="Regions", description="Regions that hold a bucket; the first is the source."
    )
    expire_days: int | None = Field(
        default=None,
        ge=1,
        le=36500,
        title="Expiry",
        description="Days after which an object is deleted; left out, objects are kept.",
    )
    readers: tuple[RoleArn, ...] = Field(
        default=(),
        title="Readers",
        description="Roles of this account that may read beside the fleet's nodes, where their own policies let them.",
    )


class NfsStore(Spec):
    """A folder that a site's machine exports over NFS."""

    kind: Literal["nfs"] = Field(title="Kind", description="nfs: an export of a physical machine.")
    site: Slug = Field(title="Site", description="A site of this file.")
    machine: HostLabel = Field(title="Machine", description="The site's machine that exports it.")
    export: MountPath = Field(title="Export", description="The folder on that machine.")
    mount: MountPath = Field(title="Mount point", description="Where the site's machines mount it.")
    clients: Clients = Field(
        default=Clients.MACHINES,
        strict=False,
        title="Clients",
        description="Who may mount it: machines (those of the site that have a use) or lan (every address on the LAN; "
        "root there can act as any user except root).",
    )


Store = Annotated[EfsStore | S3Store | NfsStore, Field(discriminator="kind")]
