"""Who may open a connection to a node or to storage, as rules derived from the plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.zones import nodes_space
from bedplate.spec.network import Interconnect

SSH = 22
NFS = 2049


@dataclass(frozen=True, slots=True)
class Rule:
    """Connections let in: from a block, to one TCP port, or to all of every protocol where `port` is None.

    `name` says from whom, and never changes.
    """

    name: str
    port: int | None
    source: IPv4Network


def node_rules(plan: FleetPlan, region: RegionPlan) -> tuple[Rule, ...]:
    """Return the rules of a region's nodes' group.

    People log in from laptops and sites, never from the internet. Nodes of other regions are trusted like those of
    this one; what stands in another region's edge is not. At 60 rules a group, that is enough for 18 regions.
    """
    return (*_laptops(plan), *_sites(plan), *_far_nodes(plan, region))


def storage_rules(plan: FleetPlan) -> tuple[Rule, ...]:
    """Return the rules of the storage group: every region mounts. One rule a region, for AWS allows 60 a group."""
    return tuple(Rule(f"nfs-from-{region.name}", NFS, region.block) for region in plan.regions)


def _laptops(plan: FleetPlan) -> Iterator[Rule]:
    for pool in plan.laptops:
        yield Rule(f"ssh-from-laptops-{pool.place}", SSH, pool.block)


def _sites(plan: FleetPlan) -> Iterator[Rule]:
    for site in plan.sites:
        yield Rule(f"ssh-from-site-{site.name}", SSH, site.lan)


def _far_nodes(plan: FleetPlan, region: RegionPlan) -> Iterator[Rule]:
    """Yield the rules for the nodes of other regions: three blocks a region, which no new zone changes."""
    if plan.interconnect is Interconnect.NONE:
        return
    for other in plan.regions:
        if other.name != region.name:
            for block in nodes_space(other.block):
                yield Rule(f"all-from-nodes-{other.name}-{block.prefixlen}", None, block)
