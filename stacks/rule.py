"""Who may open a connection to a node or to storage, as rules derived from the plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan

SSH = 22
NFS = 2049


@dataclass(frozen=True, slots=True)
class Rule:
    """Connections let in: from a block, to one TCP port; `name` says from whom, and never changes."""

    name: str
    port: int
    source: IPv4Network


def node_rules(plan: FleetPlan) -> tuple[Rule, ...]:
    """Return the rules of the nodes' group: people log in from laptops and sites, never from the internet."""
    return (*_laptops(plan), *_sites(plan))


def storage_rules(plan: FleetPlan) -> tuple[Rule, ...]:
    """Return the rules of the storage group: every region mounts. One rule a region, for AWS allows 60 a group."""
    return tuple(Rule(f"nfs-from-{region.name}", NFS, region.block) for region in plan.regions)


def _laptops(plan: FleetPlan) -> Iterator[Rule]:
    for pool in plan.laptops:
        yield Rule(f"ssh-from-laptops-{pool.place}", SSH, pool.block)


def _sites(plan: FleetPlan) -> Iterator[Rule]:
    for site in plan.sites:
        yield Rule(f"ssh-from-site-{site.name}", SSH, site.lan)
