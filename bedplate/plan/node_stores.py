"""What a machine mounts, exports and reads: storage of the cloud on its nodes, a site's own on the site's machines."""

from ipaddress import IPv4Network

from bedplate.plan.fleet import BucketPlan, ExportPlan, FleetPlan
from bedplate.plan.node import Duty, Ground, Mount, MountKind, Share
from bedplate.spec.site import Use
from bedplate.spec.storage import Clients

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
    """Return what a machine of a site exports, and to which addresses."""
    return tuple(
        Share(each.store, each.export, each.mount, tuple(_address(block) for _, block in clients(plan, each)))
        for each in exports_of(plan, label, place)
    )


def exports_of(plan: FleetPlan, label: str, place: str) -> tuple[ExportPlan, ...]:
    """Return the exports of a site's machine."""
    return tuple(each for each in plan.exports if (each.site, each.machine) == (place, label))


def clients(plan: FleetPlan, export: ExportPlan) -> tuple[tuple[str, IPv4Network], ...]:
    """Return who may mount an export, each with a name: the other machines that mount it, or the whole LAN."""
    site = next(site for site in plan.sites if site.name == export.site)
    if export.clients is Clients.LAN:
        return ((site.name, site.lan),)
    server = f"{export.machine}.{site.name}"
    return tuple((name, block) for name, block in site.used_for(*Use) if name != server)


def _address(block: IPv4Network) -> str:
    return str(block).removesuffix("/32")


def buckets(plan: FleetPlan, region: str, duties: frozenset[Duty]) -> tuple[BucketPlan, ...]:
    """Return the bucket of each store that a machine reads: its own region's, or the store's first."""
    if not duties & _USERS:
        return ()
    found: dict[str, BucketPlan] = {}
    for bucket in plan.buckets:
        if bucket.store not in found or bucket.region == region:
            found[bucket.store] = bucket
    return tuple(found.values())
