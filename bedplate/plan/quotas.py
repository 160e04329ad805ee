"""What a fleet needs of each region's quotas: at the minimum of its groups, and at their maximum."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from bedplate.catalog import Catalog
from bedplate.catalog.tables import QuotaFacts
from bedplate.plan.cost import Standing, laptop_gateways, nat_gateways, resolvers, standing, standing_volumes
from bedplate.plan.firewall import WORKER_PORTS, control_rules, has_workers, node_rules, storage_rules
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import has_transit
from bedplate.plan.pools import PoolPlan, together
from bedplate.spec.groups import Market
from bedplate.spec.network import Egress

# What the account was granted, by region and quota code; empty where nobody could ask.
Granted = Mapping[tuple[str, str], float]

_TIB = 1024
# `p5en.48xlarge`: family p, generation 5.
_FAMILY = re.compile(r"([a-z]+)-?(\d*)")
# Machines in a reservation count as machines on demand do; those in a capacity block count nowhere.
# Source: EC2 user guide, On-Demand Instance quotas and Capacity Blocks considerations.
_COUNTS_AS = {Market.ON_DEMAND: "on-demand", Market.RESERVATION: "on-demand", Market.SPOT: "spot"}


@dataclass(frozen=True, slots=True)
class Need:
    """How much of a quota a region needs, with every group at its minimum and at its maximum."""

    region: str
    quota: QuotaFacts
    least: int
    most: int


def needs(plan: FleetPlan, catalog: Catalog) -> tuple[Need, ...]:
    """Return what every region needs, in the order of the file; nothing of which it needs none."""
    every = (need for region in plan.regions for need in _of_region(plan, region, catalog))
    return tuple(need for need in every if need.most)


def _of_region(plan: FleetPlan, region: RegionPlan, catalog: Catalog) -> Iterator[Need]:
    pools = [pool for pool in plan.pools if pool.region == region.name]
    stands = [each for each in standing(plan) if each.region == region.name and each.work]
    for quota in catalog.quotas.values():
        if quota.market:
            yield _processors(region.name, quota, pools, stands, catalog)
    groups = len(pools) + sum(each.count for each in stands)
    counted = _disks(pools, _standing_gib(plan, region.name)) | _counts(plan, region, groups)
    for name, (least, most) in counted.items():
        if name in catalog.quotas:
            yield Need(region.name, catalog.quotas[name], least, most)


def _processors(
    region: str, quota: QuotaFacts, pools: Iterable[PoolPlan], stands: Iterable[Standing], catalog: Catalog
) -> Need:
    """Return the vCPUs that count against a quota: pools of one group share its maximum."""
    fixed = sum(each.count * _vcpus((each.rate,), quota, catalog) for each in stands if quota.market == "on-demand")
    least = most = fixed
    alike = [pool for pool in pools if _COUNTS_AS.get(pool.market) == quota.market]
    for _, group in groupby(alike, key=lambda pool: pool.group):
        each = tuple(group)
        vcpus = _vcpus(each[0].types, quota, catalog)
        least += sum(pool.min for pool in each) * vcpus
        most += together(each) * vcpus
    return Need(region, quota, least, most)


def _vcpus(types: tuple[str, ...], quota: QuotaFacts, catalog: Catalog) -> int:
    """Return the vCPUs of the largest of the types that count against the quota."""
    facts = (catalog.types[name] for name in types if name in catalog.types)
    counts = (each.vcpus for each in facts if _family(each.name, quota, catalog) in quota.families)
    return max(counts, default=0)


def _family(type_name: str, quota: QuotaFacts, catalog: Catalog) -> str:
    """Return the family by which a type counts in a market: with its generation where a quota names that."""
    letters, generation = _FAMILY.match(type_name).groups()  # type: ignore[union-attr]  # every type starts so
    named = {family for each in catalog.quotas.values() if each.market == quota.market for family in each.families}
    return letters + generation if letters + generation in named else letters


def _standing_gib(plan: FleetPlan, region: str) -> int:
    return sum(each.count * each.volume.gib for each in standing_volumes(plan) if each.region == region)


def _disks(pools: Iterable[PoolPlan], standing_gib: int) -> dict[str, tuple[int, int]]:
    least = most = standing_gib
    for _, group in groupby(pools, key=lambda pool: pool.group):
        each = tuple(group)
        least += sum(pool.min for pool in each) * each[0].volume.gib
        most += together(each) * each[0].volume.gib
    return {"gp3 storage, TiB": (-(-least // _TIB), -(-most // _TIB))}


def _rules(plan: FleetPlan, region: RegionPlan) -> int:
    """Return how many rules the largest group has, with those that name a group: the group itself, or another."""
    nodes = len(node_rules(plan, region)) + 1
    storage = len(storage_rules(plan, region)) + 1 if any(each.region == region.name for each in plan.files) else 0
    if not (region.home and plan.control_plane):
        return max(nodes, storage)
    to_control = 1 + (len(WORKER_PORTS) if has_workers(plan, region.name) else 0)
    return max(nodes + 1, len(control_rules(plan)) + 1 + to_control, storage)


def _counts(plan: FleetPlan, region: RegionPlan, groups: int) -> dict[str, tuple[int, int]]:
    """Return what does not depend on how many machines there are."""
    nat = nat_gateways(plan, region)
    counts = {
        "VPCs": 1,
        "elastic addresses": nat + laptop_gateways(plan, region),
        "NAT gateways in a zone": int(plan.egress is not Egress.NONE),
        "interface endpoints in a VPC": len(plan.endpoints),
        "rules in a security group": _rules(plan, region),
        "transit gateways": int(has_transit(plan)),
        "VPN connections": len(plan.sites),
        "Auto Scaling groups": groups,
        "resolver endpoints": resolvers(plan, region),
        "file systems": sum(each.region == region.name for each in plan.files),
    }
    return {name: (count, count) for name, count in counts.items()}
