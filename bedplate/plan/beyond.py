"""What lies beyond a region's VPC: the blocks to which its route tables and its transit gateway must lead.

A place is a region or a site. Behind it stand its own block and, where it has a laptop gateway, that gateway's pool.
Pods and services are no places: they travel inside packets between nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.spec.network import Interconnect

# Private numbers of four bytes begin here (RFC 6996).
_FIRST_ASN = 4_200_000_000
# A region's block is a /20 or wider, so that its first 20 bits are its own.
_HOST_BITS = 12
# The numbers of transit gateways, whatever the blocks of their regions.
TRANSIT_ASNS = range(_FIRST_ASN, _FIRST_ASN + 2 ** (32 - _HOST_BITS))


@dataclass(frozen=True, slots=True)
class Beyond:
    """A block elsewhere; `name` says whose it is, `place` the region or site that it lies behind."""

    name: str
    place: str
    block: IPv4Network


def places(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of a fleet's regions, then of its sites, each in the order of the file."""
    return (*(region.name for region in plan.regions), *(site.name for site in plan.sites))


def beyond(plan: FleetPlan, region: str) -> tuple[Beyond, ...]:
    """Return all that lies behind the other places of a fleet."""
    return tuple(each for place in places(plan) if place != region for each in behind(plan, place))


def behind(plan: FleetPlan, place: str) -> tuple[Beyond, ...]:
    """Return the blocks behind a region or a site: its own, and its laptops' pool."""
    return (*_own(plan, place), *_pools(plan, place))


def has_transit(plan: FleetPlan) -> bool:
    """Tell whether the fleet needs transit gateways: it asks for them, and there is something to lead to."""
    return plan.interconnect is Interconnect.TRANSIT and len(plan.regions) + len(plan.sites) > 1


def asks_here(plan: FleetPlan, region: RegionPlan) -> bool:
    """Tell whether sites or laptops resolve in a region: at home, and by their own gateway where none leads there."""
    if has_transit(plan):
        return region.home and bool(plan.sites or plan.laptops)
    has_gateway = any(pool.place == region.name for pool in plan.laptops)
    return has_gateway or (region.home and bool(plan.sites))


def transit_asn(region: RegionPlan) -> int:
    """Return the number of a region's transit gateway.

    It follows from the region's block alone, so that no other region's coming or going changes it, and no two
    regions share it. It has four bytes: sites keep the short numbers for themselves.
    """
    return _FIRST_ASN + (int(region.block.network_address) >> _HOST_BITS)


def _own(plan: FleetPlan, place: str) -> Iterator[Beyond]:
    for region in plan.regions:
        if region.name == place:
            yield Beyond(region.name, place, region.block)
    for site in plan.sites:
        if site.name == place:
            yield Beyond(f"site-{site.name}", place, site.lan)


def _pools(plan: FleetPlan, place: str) -> Iterator[Beyond]:
    for pool in plan.laptops:
        if pool.place == place:
            yield Beyond(f"laptops-{place}", place, pool.block)
