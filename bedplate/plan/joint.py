"""Places that their own gateways join, where AWS's interconnect is not used: which, and what each leads to.

Knows addresses of the plan and of the record; makes no tunnel, and asks nobody.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

from bedplate.plan.beyond import behind
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Interconnect


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
