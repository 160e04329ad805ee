"""The shared storage of a machine: its mounts, its NFS exports with their clients, and the buckets that it reads."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stores import BucketPlan, ExportPlan
from bedplate.spec.sites import Clients


class MountKind(StrEnum):
    """The protocol of a mount."""

    EFS = "efs"
    NFS = "nfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """Shared storage at a path: `server` is its DNS name in the fleet, `export` the folder on the server.

    `region` is the region of an EFS file system, which its TLS certificate names. `is_synchronous`: a program that
    writes waits for the server, so it gets the error if the server is lost.
    """

    store: str
    kind: MountKind
    server: str
    export: str
    path: str
    region: str = ""
    is_synchronous: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A folder that the machine exports over NFS, and the blocks that may mount it."""

    store: str
    path: str
    mount: str
    clients: tuple[str, ...]


def cloud_mounts(plan: FleetPlan) -> tuple[Mount, ...]:
    """Return the mounts of an instance: all file systems of EFS."""
    files, _, _ = plan.stores
    return tuple(
        Mount(
            store=system.store,
            kind=MountKind.EFS,
            server=f"{system.store}.files.{system.region}.{plan.domain}",
            export="/",
            path=system.mount,
            region=system.region,
        )
        for system in files
    )


def site_mounts(plan: FleetPlan, label: str, place: str, backup: ExportPlan | None) -> tuple[Mount, ...]:
    """Return the mounts of a site's machine: the exports of other machines there, or only that of the hub's backup."""
    _, exports, _ = plan.stores
    return tuple(
        Mount(
            store=export.store,
            kind=MountKind.NFS,
            server=f"{export.machine}.{place}.{plan.domain}",
            export=export.export,
            path=export.mount,
            is_synchronous=backup is not None,
        )
        for export in exports
        if export.site == place and export.machine != label and (backup is None or export == backup)
    )


def shares_of(plan: FleetPlan, label: str, place: str) -> tuple[Share, ...]:
    """Return the NFS exports of a site's machine, with the addresses of their clients."""
    return tuple(
        Share(
            store=export.store,
            path=export.export,
            mount=export.mount,
            clients=tuple(str(block).removesuffix("/32") for _, block in clients_of(plan, export)),
        )
        for export in exports_of(plan, label, place)
    )


def exports_of(plan: FleetPlan, label: str, place: str) -> tuple[ExportPlan, ...]:
    """Return the exports of a site's machine."""
    return tuple(export for export in plan.exports if (export.site, export.machine) == (place, label))


def clients_of(plan: FleetPlan, export: ExportPlan) -> tuple[tuple[str, IPv4Network], ...]:
    """Return the name and block of each client of an export: the machines that mount it, or the whole LAN."""
    site = plan.sites_by_name[export.site]
    if export.clients is Clients.LAN:
        return tuple(site.networks.items())
    server = f"{export.machine}.{site.name}"
    clients = tuple((name, block) for name, block in site.used_blocks() if name != server)
    hub = plan.hub if plan.hub and plan.hub.backup == export else None
    return (*clients, (hub.node, IPv4Network(hub.address))) if hub else clients


def buckets_near(plan: FleetPlan, region: str) -> tuple[BucketPlan, ...]:
    """Return one bucket of each store for a machine to read: the one in its region, else the store's first."""
    buckets: dict[str, BucketPlan] = {}
    for bucket in plan.buckets:
        if bucket.store not in buckets or bucket.region == region:
            buckets[bucket.store] = bucket
    return tuple(buckets.values())
