"""Shared storage: EFS and S3 in the cloud, NFS on a site."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import HostLabel, MountPath, RegionName, RoleArn, Slug


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
