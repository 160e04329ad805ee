"""The stores of a fleet by kind: EFS file systems, exports of sites, and S3 buckets."""

from dataclasses import dataclass
from typing import assert_never

from bedplate.plan.pools import bucket_name
from bedplate.spec.fleet import Fleet
from bedplate.spec.sites import Clients, EfsStore, NfsStore, S3Store


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """An EFS file system."""

    store: str
    region: str
    mount: str


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """A folder that a site's machine exports over NFS to clients on the site."""

    store: str
    site: str
    machine: str
    export: str
    mount: str
    clients: Clients = Clients.MACHINES


NODES_STORE = "nodes"
"""The part of a bucket's name that no store may have: the bucket of node bundles."""
ISSUER_STORE = "issuer"
"""The same of the bucket with the public keys of the cluster."""


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """One S3 bucket of a store, in one region; `name` is unique over all AWS accounts."""

    store: str
    region: str
    name: str
    expire_days: int | None
    readers: tuple[str, ...] = ()
    """ARNs of roles outside the fleet that may read."""

    @property
    def host(self) -> str:
        """The host name at which its objects are."""
        return f"{self.name}.s3.{self.region}.amazonaws.com"


def stores(fleet: Fleet) -> tuple[tuple[FilesPlan, ...], tuple[ExportPlan, ...], tuple[BucketPlan, ...]]:
    """Return the EFS file systems, the exports of sites, and a bucket for each region of each S3 store."""
    files: list[FilesPlan] = []
    exports: list[ExportPlan] = []
    buckets: list[BucketPlan] = []
    for name, store in fleet.storage.items():
        match store:
            case EfsStore():
                files.append(FilesPlan(name, store.region, store.mount))
            case NfsStore():
                exports.append(
                    ExportPlan(name, store.site, store.machine, store.export, store.mount, clients=store.clients)
                )
            case S3Store():
                buckets += [
                    BucketPlan(
                        store=name,
                        region=region,
                        name=bucket_name(fleet.name, name, fleet.account, region),
                        expire_days=store.expire_days,
                        readers=store.readers,
                    )
                    for region in store.regions
                ]
            case _:
                assert_never(store)
    return tuple(files), tuple(exports), tuple(buckets)
