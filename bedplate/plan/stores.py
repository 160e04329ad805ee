"""Shared storage: file systems and buckets in the cloud, and what machines of sites export."""

from bedplate.plan.fleet import BucketPlan, ExportPlan, FilesPlan
from bedplate.plan.names import bucket_name
from bedplate.spec import Fleet
from bedplate.spec.storage import EfsStore, NfsStore, S3Store


def files(fleet: Fleet) -> tuple[FilesPlan, ...]:
    """Return the EFS file systems, in the order of the file."""
    return tuple(
        FilesPlan(store=name, region=store.region, mount=store.mount)
        for name, store in fleet.storage.items()
        if isinstance(store, EfsStore)
    )


def buckets(fleet: Fleet) -> tuple[BucketPlan, ...]:
    """Return a bucket for each region of each S3 store, in the order of the file."""
    return tuple(
        BucketPlan(
            store=name,
            region=region,
            name=bucket_name(fleet.name, name, fleet.account, region),
            expire_days=store.expire_days,
            readers=store.readers,
        )
        for name, store in fleet.storage.items()
        if isinstance(store, S3Store)
        for region in store.regions
    )


def exports(fleet: Fleet) -> tuple[ExportPlan, ...]:
    """Return the folders that sites' machines export over NFS, in the order of the file."""
    return tuple(
        ExportPlan(
            store=name,
            site=store.site,
            machine=store.machine,
            export=store.export,
            mount=store.mount,
            clients=store.clients,
        )
        for name, store in fleet.storage.items()
        if isinstance(store, NfsStore)
    )
