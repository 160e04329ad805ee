"""What a gateway is to have by the plan and the keys: its tunnels, what BGP is to tell by them, the newest list.

Decides from values alone; what the gateway has is another module's matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan import FleetPlan
from bedplate.plan.beyond import behind, beyond, has_transit
from bedplate.plan.fleet import TunnelPlan
from bedplate.plan.joint import peers_of
from bedplate.plan.node import Duty, NodePlan


@dataclass(frozen=True, slots=True)
class WantedTunnel:
    """A tunnel by its name; `tells` holds what BGP is to tell by it, nothing where its routes are fixed."""

    name: str
    tells: tuple[IPv4Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """All of it: `elsewhere` is what one of the tunnels is to tell of, whichever, `number` that of the newest list.

    `number` is None where no authority was begun.
    """

    tunnels: tuple[WantedTunnel, ...] = ()
    elsewhere: tuple[IPv4Network, ...] = ()
    number: int | None = None


def wanted(plan: FleetPlan, node: NodePlan, number: int | None) -> Wanted:
    """Return what a gateway of the plan is to have; `number` is that of the authority's newest list."""
    place = node.name.partition(".")[2]
    if Duty.TUNNELS in node.duties:
        to_regions = (WantedTunnel(each.name, _told(plan, each)) for each in plan.tunnels if each.site == place)
        return Wanted((*to_regions, *_direct(plan, place)), _told_by_any(plan, place), number)
    peers = peers_of(plan, place) if Duty.JOINT in node.duties else ()
    return Wanted(tuple(WantedTunnel(each.region) for each in peers), number=number)


def _told(plan: FleetPlan, tunnel: TunnelPlan) -> tuple[IPv4Network, ...]:
    """Return the blocks of a tunnel's own region: all that its transit gateway leads to, or the VPC's alone.

    A virtual private gateway tells of its VPC, and not of what the VPC's tables lead to, as a pool of laptops.
    Source: AWS Site-to-Site VPN user guide, "Route priority and prefixes", 2026-11.
    """
    if not has_transit(plan):
        return (plan.region(tunnel.region).block,)
    return tuple(each.block for each in behind(plan, tunnel.region))


def _direct(plan: FleetPlan, site: str) -> Iterator[WantedTunnel]:
    """Yield the tunnels to sites that are joined, each of which tells of its own blocks."""
    for each in plan.directs_of(site):
        yield WantedTunnel(each.name(site), tuple(block.block for block in behind(plan, each.other(site))))


def _told_by_any(plan: FleetPlan, site: str) -> tuple[IPv4Network, ...]:
    """Return what lies behind other sites, to which each transit gateway leads by a fixed route."""
    sites = {each.name for each in plan.sites} if has_transit(plan) else set()
    return tuple(each.block for each in beyond(plan, site) if each.place in sites)
