"""What lies beyond a region's VPC: the blocks to which its route tables and its transit gateway must lead.

A place is a region or a site. Behind it stand its own block and, where it has a laptop gateway, that gateway's pool.
Pods and services are no places: they travel inside packets between nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

from bedplate.plan.fleet import FleetPlan, Member, RegionPlan
from bedplate.plan.pools import PoolPlan, together
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Use

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


@dataclass(frozen=True, slots=True)
class Joint:
    """A region's gateway as the others see it: `blocks` lie behind it, the region's own first, then its laptops' pool.

    `public` is None until the record holds it. `echo` is the gateway's own address among its laptops.
    """

    region: str
    public: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    echo: IPv4Address


def joined_regions(plan: FleetPlan) -> tuple[str, ...]:
    """Return the regions that their gateways join, in the order of the file: two or more, or none."""
    if plan.interconnect is not Interconnect.NONE:
        return ()
    with_gateway = {pool.place for pool in plan.laptops}
    found = tuple(region.name for region in plan.regions if region.name in with_gateway)
    return found if len(found) > 1 else ()


def pairs(plan: FleetPlan) -> tuple[frozenset[str], ...]:
    """Return each two places whose gateways have a tunnel without AWS: regions, and sites."""
    regions = (frozenset(two) for two in combinations(joined_regions(plan), 2))
    return (*regions, *(frozenset(each.sites) for each in plan.directs))


def is_led(plan: FleetPlan, one: str, other: str) -> bool:
    """Tell whether anything leads from one region of a fleet to another, or from a site to one that it is joined to."""
    if plan.interconnect is not Interconnect.NONE or {one, other} <= set(joined_regions(plan)):
        return True
    return any({one, other} == set(each.sites) for each in plan.directs)


def joint_of(plan: FleetPlan, region: str) -> Joint:
    """Return the gateway of a joined region; KeyError for a region that is not joined."""
    if region not in joined_regions(plan):
        raise KeyError(region)
    pool = next(pool.block for pool in plan.laptops if pool.place == region)
    blocks = tuple(each.block for each in behind(plan, region))
    return Joint(region, plan.record.gateways.get(region), blocks, pool[1])


def peers_of(plan: FleetPlan, region: str) -> tuple[Joint, ...]:
    """Return the gateways that a region's own is joined to: none for a region that stays alone."""
    every = joined_regions(plan)
    return tuple(joint_of(plan, each) for each in every if each != region) if region in every else ()


API_PORT = 6443


def api_name(plan: FleetPlan) -> str:
    """Return the name of the Kubernetes API, which leads to every machine of the control plane."""
    return f"kubernetes.{plan.domain}"


def short_name(member: Member) -> str:
    """Return the name of a machine of the control plane without its place: `control-1`."""
    return member.name.partition(".")[0]


def ssh_pools(plan: FleetPlan) -> tuple[PoolPlan, ...]:
    """Return the first pool in each region of each group that people log in to: names go by group and region."""
    found: dict[tuple[str, str], PoolPlan] = {}
    for pool in plan.pools:
        if pool.use is Use.SSH:
            found.setdefault((pool.group, pool.region), pool)
    return tuple(found.values())


def ssh_name(plan: FleetPlan, pool: PoolPlan, number: int) -> str:
    """Return the name of one of the machines that people log in to: `workbench-gpu-1.us-west-2.lab.internal`."""
    return f"{pool.group}-{number}.{pool.region}.{plan.domain}"


def highest(plan: FleetPlan, pool: PoolPlan) -> int:
    """Return the highest number of a pool's machines: all pools of its group in its region share the names."""
    place = (pool.group, pool.region)
    return together([pool, *(one for one in plan.pools if (one.group, one.region) == place and one.name != pool.name)])


def ssh_patterns(plan: FleetPlan, pool: PoolPlan) -> tuple[str, ...]:
    """Return patterns that hold the names of a pool's machines, a `?` a digit of the highest number."""
    digits = range(1, len(str(highest(plan, pool))) + 1)
    return tuple(f"{pool.group}-{'?' * count}.{pool.region}.{plan.domain}" for count in digits)
