"""What a machine mounts, exports and reads: storage of the cloud on its nodes, a site's own on the site's machines."""

from bedplate.plan.fleet import BucketPlan, FleetPlan
from bedplate.plan.node import Duty, Ground, Mount, MountKind, Share

_USERS = frozenset({Duty.WORKBENCH, Duty.WORKER})


def mounts(plan: FleetPlan, label: str, place: str, ground: Ground, duties: frozenset[Duty]) -> tuple[Mount, ...]:
    """Return what a machine mounts: nothing where nobody works on it and it serves alone."""
    if not duties & _USERS:
        return ()
    if ground is Ground.CLOUD:
        return tuple(
            Mount(
                each.store,
                MountKind.EFS,
                f"{each.store}.files.{each.region}.{plan.domain}",
                "/",
                each.mount,
                each.region,
            )
            for each in plan.files
        )
    return tuple(
        Mount(each.store, MountKind.NFS, f"{each.machine}.{place}.{plan.domain}", each.export, each.mount)
        for each in plan.exports
        if each.site == place and each.machine != label
    )


def shares(plan: FleetPlan, label: str, place: str) -> tuple[Share, ...]:
    """Return what a machine of a site exports: to the site's own LAN, whatever address asks there."""
    lans = {site.name: str(site.lan) for site in plan.sites}
    return tuple(
        Share(each.store, each.export, each.mount, (lans[place],))
        for each in plan.exports
        if (each.site, each.machine) == (place, label)
    )


def buckets(plan: FleetPlan, region: str, duties: frozenset[Duty]) -> tuple[BucketPlan, ...]:
    """Return the bucket of each store that a machine reads: its own region's, or the store's first."""
    if not duties & _USERS:
        return ()
    found: dict[str, BucketPlan] = {}
    for bucket in plan.buckets:
        if bucket.store not in found or bucket.region == region:
            found[bucket.store] = bucket
    return tuple(found.values())
