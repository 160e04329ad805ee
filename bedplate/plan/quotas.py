"""The AWS quotas that a fleet needs in each region, at the minimum and the maximum of its groups."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from bedplate.catalog import Catalog
from bedplate.catalog.tables import QuotaFacts
from bedplate.plan.cost import (
    FixedResource,
    fixed_resources,
    fixed_volumes,
    laptop_gateway_count,
    nat_gateway_count,
    resolver_count,
)
from bedplate.plan.firewall import WORKER_PORTS, control_rules, has_workers, node_rules, pod_rules, storage_rules
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import has_transit
from bedplate.plan.pools import PoolPlan, combined_max
from bedplate.spec.groups import Market
from bedplate.spec.network import Egress

# The quota values of the account, by region and quota code; empty without access to the account.
Granted = Mapping[tuple[str, str], float]

_TIB = 1024
# `p5en.48xlarge`: family p, generation 5.
_FAMILY = re.compile(r"([a-z]+)-?(\d*)")
# Machines in a reservation count like on-demand machines; machines in a capacity block do not count.
# Source: EC2 user guide, On-Demand Instance quotas and Capacity Blocks considerations.
_COUNTS_AS = {Market.ON_DEMAND: "on-demand", Market.RESERVATION: "on-demand", Market.SPOT: "spot"}


@dataclass(frozen=True, slots=True)
class QuotaNeed:
    """The value of a quota that a region needs, with every group at its minimum and at its maximum."""

    region: str
    quota: QuotaFacts
    least: int
    most: int


def quota_needs(plan: FleetPlan, catalog: Catalog) -> tuple[QuotaNeed, ...]:
    """Return the needs of every region above zero, in the order of the file."""
    region_needs = (need for region in plan.regions for need in _of_region(plan, region, catalog))
    return tuple(need for need in region_needs if need.most)


def _of_region(plan: FleetPlan, region: RegionPlan, catalog: Catalog) -> Iterator[QuotaNeed]:
    pools = [pool for pool in plan.pools if pool.region == region.name]
    machines = [fixed for fixed in fixed_resources(plan) if fixed.region == region.name and fixed.work]
    for quota in catalog.quotas.values():
        if quota.market:
            yield _vcpu_need(region.name, quota, pools, machines, catalog)
    groups = len(pools) + sum(fixed.count for fixed in machines)
    counted = _disks(pools, _fixed_gib(plan, region.name)) | _counts(plan, region, groups)
    for name, (least, most) in counted.items():
        if name in catalog.quotas:
            yield QuotaNeed(region.name, catalog.quotas[name], least, most)


def _vcpu_need(
    region: str, quota: QuotaFacts, pools: Iterable[PoolPlan], machines: Iterable[FixedResource], catalog: Catalog
) -> QuotaNeed:
    """Return the vCPUs that count against a quota: pools of one group share its maximum."""
    is_on_demand = quota.market == "on-demand"
    fixed = sum(machine.count * _vcpus((machine.rate,), quota, catalog) for machine in machines if is_on_demand)
    least = most = fixed
    counted = [pool for pool in pools if _COUNTS_AS.get(pool.market) == quota.market]
    for _, group in groupby(counted, key=lambda pool: pool.group):
        same_group = tuple(group)
        vcpus = _vcpus(same_group[0].types, quota, catalog)
        least += sum(pool.min for pool in same_group) * vcpus
        most += combined_max(same_group) * vcpus
    return QuotaNeed(region, quota, least, most)


def _vcpus(types: tuple[str, ...], quota: QuotaFacts, catalog: Catalog) -> int:
    """Return the vCPUs of the largest of the types that count against the quota."""
    facts = (catalog.types[name] for name in types if name in catalog.types)
    in_quota = (kind for kind in facts if _family(kind.name, quota, catalog) in quota.families)
    return max((kind.vcpus for kind in in_quota), default=0)


def _family(type_name: str, quota: QuotaFacts, catalog: Catalog) -> str:
    """Return a type's family in the quotas of a market, with the generation if one of them names it."""
    letters, generation = _FAMILY.match(type_name).groups()  # type: ignore[union-attr]  # every type matches
    same_market = (other for other in catalog.quotas.values() if other.market == quota.market)
    families = {family for other in same_market for family in other.families}
    return letters + generation if letters + generation in families else letters


def _fixed_gib(plan: FleetPlan, region: str) -> int:
    return sum(volumes.count * volumes.volume.gib for volumes in fixed_volumes(plan) if volumes.region == region)


def _disks(pools: Iterable[PoolPlan], fixed_gib: int) -> dict[str, tuple[int, int]]:
    least = most = fixed_gib
    for _, group in groupby(pools, key=lambda pool: pool.group):
        same_group = tuple(group)
        least += sum(pool.min for pool in same_group) * same_group[0].volume.gib
        most += combined_max(same_group) * same_group[0].volume.gib
    return {"gp3 storage, TiB": (-(-least // _TIB), -(-most // _TIB))}


def _rules(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of rules of the largest security group, including rules with a group as source."""
    nodes = len(node_rules(plan, region)) + 1
    storage = len(storage_rules(plan, region)) + 1 if _file_systems(plan, region) else 0
    if not (region.home and plan.control_plane):
        return max(nodes, storage)
    to_control = 1 + (len(WORKER_PORTS) if has_workers(plan, region.name) else 0)
    return max(nodes + 1, len(control_rules(plan)) + 1 + to_control, len(pod_rules(plan)), storage)


def _counts(plan: FleetPlan, region: RegionPlan, groups: int) -> dict[str, tuple[int, int]]:
    """Return the needs that do not depend on the number of machines."""
    counts = {
        "VPCs": 1,
        "elastic addresses": nat_gateway_count(plan, region) + laptop_gateway_count(plan, region),
        "NAT gateways in a zone": int(plan.egress is not Egress.NONE),
        "interface endpoints in a VPC": len(plan.endpoints),
        "rules in a security group": _rules(plan, region),
        "transit gateways": int(has_transit(plan)),
        "VPN connections": len(plan.sites),
        "Auto Scaling groups": groups,
        "resolver endpoints": resolver_count(plan, region),
        "file systems": _file_systems(plan, region),
    }
    return {name: (count, count) for name, count in counts.items()}


def _file_systems(plan: FleetPlan, region: RegionPlan) -> int:
    return sum(files.region == region.name for files in plan.files)
