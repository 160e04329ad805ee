"""The cost of a fleet in USD an hour and the AWS quotas that it needs, at the minimum and the maximum of its groups."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.tables import HOURS_OF_MONTH, QuotaFacts
from bedplate.plan.firewall import (
    WORKER_PORTS,
    control_rules,
    has_workers,
    hub_rules,
    node_rules,
    pod_rules,
    storage_rules,
)
from bedplate.plan.fleet import FleetPlan, RegionPlan, cached_on_plan
from bedplate.plan.links import has_inbound_resolver, has_outbound_resolver, has_transit, remote_networks
from bedplate.plan.pools import PoolPlan, VolumePlan, combined_max, pool_interfaces, share_of_week
from bedplate.spec.groups import Market
from bedplate.spec.network import Egress

# List prices have at most five decimals; rounding hides float errors in sums.
_DECIMALS = 5


@dataclass(frozen=True, slots=True)
class CostRange:
    """USD an hour, at minimum and at maximum."""

    min: float
    max: float

    @property
    def monthly(self) -> "CostRange":
        """The same for a month of 730 hours."""
        return CostRange(round(self.min * HOURS_OF_MONTH, 2), round(self.max * HOURS_OF_MONTH, 2))


NOTHING = CostRange(0.0, 0.0)


def total(spans: Iterable[CostRange]) -> CostRange:
    """Return the sum of spans."""
    addends = tuple(spans)
    minimum, maximum = sum(span.min for span in addends), sum(span.max for span in addends)
    return CostRange(round(minimum, _DECIMALS), round(maximum, _DECIMALS))


# OpenVPN uses one core, so two are enough; every region offers this type, and its network is fast enough.
GATEWAY_TYPE = "c6in.large"
GATEWAY_VOLUME = VolumePlan(16)
# Keys, lists and a host key have less than 1 MiB: the smallest volume of gp3.
KEYS_VOLUME = VolumePlan(1)
CONTROL_VOLUME = VolumePlan(50)
HUB_VOLUME = VolumePlan(50)
# etcd stores at most 8 GiB, plus its snapshots. Source: etcd documentation, "System limits".
ETCD_VOLUME = VolumePlan(32)
# A VPN connection has two tunnels, each with a public address of AWS.
TUNNELS = 2
# AWS requires a resolver endpoint in two zones.
RESOLVER_ADDRESSES = 2


@dataclass(frozen=True, slots=True)
class FixedResource:
    """Equal resources in a region; `rate` is a rate of the catalog, or for `work` the type of a machine."""

    rate: str
    region: str
    count: int
    work: str = ""

    @property
    def what(self) -> str:
        """The name on a bill."""
        return f"{self.work}, {self.rate}" if self.work else self.rate


@cached_on_plan
def fixed_resources(plan: FleetPlan) -> tuple[FixedResource, ...]:
    """Return the resources of each region with a fixed cost, except volumes; pools are not fixed."""
    resources = (resource for region in plan.regions for resource in _in_region(plan, region))
    return tuple(resource for resource in resources if resource.count)


def _in_region(plan: FleetPlan, region: RegionPlan) -> Iterator[FixedResource]:
    gateways, nat = laptop_gateway_count(plan, region), nat_gateway_count(plan, region)
    counts = {
        "nat-gateway": nat,
        "public-address": nat + gateways + TUNNELS * len(plan.sites),
        "transit-attachment": _attachments(plan),
        "vpn-connection": len(plan.sites),
        "resolver-address": RESOLVER_ADDRESSES * resolver_count(plan, region),
        "interface-endpoint": len(plan.endpoints) * len(region.zones),
        "key": 2,
        "alarm": _alarm_metrics(plan, region),
    }
    yield from (FixedResource(rate, region.name, count) for rate, count in counts.items())
    yield FixedResource(GATEWAY_TYPE, region.name, gateways, "laptop gateway")
    if plan.hub and plan.hub.region == region.name:
        yield FixedResource(plan.hub.type, region.name, 1, "hub")
    if region.home:
        yield from _at_home(plan, region.name)


def _at_home(plan: FleetPlan, home: str) -> Iterator[FixedResource]:
    yield FixedResource("key", home, 1)
    yield FixedResource("secret", home, len(plan.sites) * len(plan.regions))
    yield FixedResource("hosted-zone", home, 1 + len(_reverse_zones(plan)))
    if plan.control_plane:
        yield FixedResource(plan.control_plane.type, home, len(plan.control_plane.members), "control plane")


@dataclass(frozen=True, slots=True)
class FixedVolumes:
    """A number of equal volumes in a region, other than those of pools."""

    what: str
    region: str
    count: int
    volume: VolumePlan


@cached_on_plan
def fixed_volumes(plan: FleetPlan) -> tuple[FixedVolumes, ...]:
    """Return the volumes of laptop gateways, of the control plane and of the hub."""
    members, home = len(plan.control_plane.members) if plan.control_plane else 0, plan.home.name
    volumes = (
        *(
            FixedVolumes(f"laptop gateway, {what}", region.name, laptop_gateway_count(plan, region), volume)
            for region in plan.regions
            for what, volume in (("disk", GATEWAY_VOLUME), ("keys", KEYS_VOLUME))
        ),
        FixedVolumes("control plane, disks", home, members, CONTROL_VOLUME),
        FixedVolumes("control plane, etcd", home, members, ETCD_VOLUME),
    )
    if (hub := plan.hub) and hub.region:
        volumes += (FixedVolumes("hub, disk", hub.region, 1, HUB_VOLUME),)
        volumes += (FixedVolumes("hub, records", hub.region, 1, VolumePlan(hub.disk)),)
    return tuple(group for group in volumes if group.count)


def nat_gateway_count(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of NAT gateways in a region."""
    return {Egress.SHARED: 1, Egress.PER_ZONE: len(region.zones), Egress.NONE: 0}[plan.egress]


def _reverse_zones(plan: FleetPlan) -> frozenset[str]:
    """Return the reverse DNS zones, of 256 addresses each, for the machines of sites."""
    return frozenset(address.reverse_pointer.partition(".")[2] for address in plan.site_addresses.values())


def resolver_count(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of resolver endpoints in a region: an inbound one, and an outbound one for other domains."""
    return has_inbound_resolver(plan, region) + has_outbound_resolver(plan, region)


def laptop_gateway_count(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of laptop gateways in a region."""
    return sum(pool.place == region.name for pool in plan.laptops)


def _attachments(plan: FleetPlan) -> int:
    """Return the number of attachments of a region's transit gateway: its VPC, each other region, each site.

    Each end of a peering is billed.
    """
    return len(plan.regions) + len(plan.sites) if has_transit(plan) else 0


def _alarm_metrics(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of metrics in a region's alarms, which are billed by metric.

    The alarm on missing instances of a group has two, that on failed gates of a pool has one.
    Source: Amazon CloudWatch pricing, metric math alarms.
    """
    pools = sum(pool.region == region.name for pool in plan.pools)
    gateways = laptop_gateway_count(plan, region)
    # A laptop gateway and the hub have one more, on their silence.
    silent = gateways + bool(plan.hub and plan.hub.region == region.name)
    groups = pools + silent
    if region.home and plan.control_plane:
        groups += len(plan.control_plane.members)
    return 2 * groups + pools + silent + nat_gateway_count(plan, region) + len(plan.sites) + _copies(plan, region)


def _copies(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of buckets to which buckets of a region are replicated."""
    sources: dict[str, str] = {}
    for bucket in plan.buckets:
        sources.setdefault(bucket.store, bucket.region)
    return sum(sources[bucket.store] == region.name != bucket.region for bucket in plan.buckets)


# The performance included in the price of gp3. Source: https://aws.amazon.com/ebs/pricing/.
_INCLUDED = VolumePlan(0)


@dataclass(frozen=True, slots=True)
class BillLine:
    """A number of equal fixed resources in one region, and their cost an hour."""

    what: str
    region: str
    count: int
    usd: float


@dataclass(frozen=True, slots=True)
class Bill:
    """USD an hour: every group at its minimum with its cheapest type, and at its maximum with its most expensive type.

    The minimum is a mean over a week: a schedule lowers it. The maximum is an upper bound: spot, reservations,
    schedules and cheaper types cost less. A group can use any region of its ladder, so the maxima of regions add up to
    more than the fleet's. `groups` and `rungs` (by pool) are the costs of machines, `disks` of their root volumes,
    `lines` of fixed resources. Types without a price are listed in `unknown` and are not in the sums.
    """

    hourly: CostRange
    groups: Mapping[str, CostRange]
    rungs: Mapping[str, CostRange]
    regions: Mapping[str, CostRange]
    disks: CostRange
    lines: tuple[BillLine, ...]
    unknown: tuple[str, ...]
    date: str
    region: str


def bill(plan: FleetPlan, catalog: Catalog) -> Bill:
    """Return the bill of a fleet, at the prices of one region and day."""
    groups = {name: tuple(pools) for name, pools in groupby(plan.pools, key=lambda pool: pool.group)}
    lines = tuple(_lines(plan, catalog))
    machines = {name: _machines(pools, catalog) for name, pools in groups.items()}
    disks = total(_disks(pools, catalog) for pools in groups.values())
    fixed = _fixed(lines)
    return Bill(
        hourly=total((*machines.values(), disks, fixed)),
        groups=MappingProxyType(machines),
        rungs=MappingProxyType({pool.name: _machines((pool,), catalog) for pool in plan.pools}),
        regions=MappingProxyType({region.name: _region(plan, region.name, lines, catalog) for region in plan.regions}),
        disks=disks,
        lines=lines,
        unknown=_unknown(plan, catalog),
        date=catalog.price_date,
        region=catalog.price_region,
    )


def _machines(pools: tuple[PoolPlan, ...], catalog: Catalog) -> CostRange:
    """Return the cost of machines in pools of one group, which share its maximum."""
    prices = [price for name in pools[0].types if (price := catalog.price(name)) is not None]
    least, most = _counts(pools)
    return total([CostRange(least * min(prices, default=0.0), most * max(prices, default=0.0))])


def _disks(pools: tuple[PoolPlan, ...], catalog: Catalog) -> CostRange:
    price = volume_price(pools[0].volume, catalog)
    least, most = _counts(pools)
    return CostRange(least * price, most * price)


def _counts(pools: tuple[PoolPlan, ...]) -> tuple[float, int]:
    """Return the mean number of machines over a week at the minimum, and the maximum."""
    return sum(pool.min for pool in pools) * share_of_week(pools[0].group_spec.schedule), combined_max(pools)


def volume_price(volume: VolumePlan, catalog: Catalog) -> float:
    """Return the price of a gp3 volume in USD an hour."""
    rates = catalog.rates
    return (
        volume.gib * rates.get("volume-gib", 0.0)
        + (volume.iops - _INCLUDED.iops) * rates.get("volume-iops", 0.0)
        + (volume.throughput - _INCLUDED.throughput) * rates.get("volume-throughput", 0.0)
    )


def _lines(plan: FleetPlan, catalog: Catalog) -> Iterator[BillLine]:
    for fixed in fixed_resources(plan):
        yield BillLine(fixed.what, fixed.region, fixed.count, fixed.count * _rate(fixed, catalog))
    for disks in fixed_volumes(plan):
        yield BillLine(disks.what, disks.region, disks.count, disks.count * volume_price(disks.volume, catalog))


def _rate(fixed: FixedResource, catalog: Catalog) -> float:
    return catalog.rates.get(fixed.rate) or catalog.price(fixed.rate) or 0.0


def _fixed(lines: Iterable[BillLine]) -> CostRange:
    usd = sum(line.usd for line in lines)
    return CostRange(usd, usd)


def _region(plan: FleetPlan, name: str, lines: Iterable[BillLine], catalog: Catalog) -> CostRange:
    here = [pool for pool in plan.pools if pool.region == name]
    groups = [tuple(pools) for _, pools in groupby(here, key=lambda pool: pool.group)]
    machines = (span for pools in groups for span in (_machines(pools, catalog), _disks(pools, catalog)))
    return total((NOTHING, *machines, _fixed(line for line in lines if line.region == name)))


def _unknown(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    pool_types = {name for pool in plan.pools for name in pool.types}
    types = pool_types | {fixed.rate for fixed in fixed_resources(plan) if fixed.work}
    return tuple(sorted(name for name in types if catalog.price(name) is None))


# The quota values of the account, by region and quota code; empty without access to the account.
Granted = Mapping[tuple[str, str], float]

_TIB = 1024
# `p5en.48xlarge`: family p, generation 5.
_FAMILY = re.compile(r"([a-z]+)-?(\d*)")


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
    counted = _quota_disks(pools, _fixed_gib(plan, region.name)) | _quota_counts(plan, region, groups)
    interfaces = _fixed_interfaces(plan, region) + sum(fixed.count for fixed in machines)
    least, most = _of_machines(pools, lambda pool: len(pool_interfaces(pool, catalog)))
    counted["network interfaces"] = (interfaces + least, interfaces + most)
    counted["parameters read a minute"] = _of_machines(pools, lambda _pool: PARAMETER_CALLS)
    if region.home:
        blocks = [pool for pool in plan.pools if pool.market.is_block]
        counted["machines in capacity blocks"] = _of_machines(blocks, lambda _pool: 1)
        named = [pool for pool in plan.pools if pool.use.is_ssh]
        counted["Route 53 calls a minute"] = _of_machines(named, lambda _pool: NAME_CALLS)
    for name, (least, most) in counted.items():
        if name in catalog.quotas:
            yield QuotaNeed(region.name, catalog.quotas[name], least, most)


# The calls of a first boot: two to register a name, and parameters. The rates are those of all machines in one minute.
NAME_CALLS, PARAMETER_CALLS = 2, 4


def _vcpu_need(
    region: str, quota: QuotaFacts, pools: Iterable[PoolPlan], machines: Iterable[FixedResource], catalog: Catalog
) -> QuotaNeed:
    """Return the vCPUs that count against a quota: pools of one group share its maximum."""
    is_on_demand = quota.market == "on-demand"
    fixed = sum(machine.count * _vcpus((machine.rate,), quota, catalog) for machine in machines if is_on_demand)
    counted = [pool for pool in pools if _quota_market(pool.market) == quota.market]
    least, most = _of_machines(counted, lambda pool: _vcpus(pool.types, quota, catalog))
    return QuotaNeed(region, quota, fixed + least, fixed + most)


def _quota_market(market: Market) -> str:
    """Return the market of the quotas for which machines count; empty if none counts them.

    Source: EC2 user guide, On-Demand Instance quotas and Capacity Blocks considerations.
    """
    match market:
        case Market.ON_DEMAND | Market.RESERVATION:
            return "on-demand"
        case Market.SPOT:
            return "spot"
        case Market.CAPACITY_BLOCK:
            return ""


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


def _of_machines(pools: Iterable[PoolPlan], amount: Callable[[PoolPlan], int]) -> tuple[int, int]:
    """Return what the machines of pools need of something: at the minimum and at the maximum of their groups."""
    least = most = 0
    for _, group in groupby(pools, key=lambda pool: pool.group):
        same_group = tuple(group)
        each = max(map(amount, same_group))
        least += sum(pool.min for pool in same_group) * each
        most += combined_max(same_group) * each
    return least, most


def _quota_disks(pools: Iterable[PoolPlan], fixed_gib: int) -> dict[str, tuple[int, int]]:
    sizes = (fixed_gib + gib for gib in _of_machines(pools, lambda pool: pool.volume.gib))
    least, most = (-(-gib // _TIB) for gib in sizes)
    return {"gp3 storage, TiB": (least, most)}


def _fixed_interfaces(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the network interfaces of a region besides the machines'.

    A NAT gateway has one, a resolver endpoint two; a file system, an endpoint and the transit gateway have one in each
    zone. Source: Amazon VPC user guide, requester-managed network interfaces.
    """
    in_each_zone = _file_systems(plan, region) + len(plan.endpoints) + int(has_transit(plan))
    return nat_gateway_count(plan, region) + in_each_zone * len(region.zones) + 2 * resolver_count(plan, region)


def _rules(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the number of rules of the largest security group, including rules with a group as source."""
    nodes = len(node_rules(plan, region)) + 1
    storage = len(storage_rules(plan, region)) + 1 if _file_systems(plan, region) else 0
    hub = len(hub_rules(plan, region)) + 2 if plan.hub and plan.hub.region == region.name else 0
    if not (region.home and plan.control_plane):
        return max(nodes, storage, hub)
    to_control = 1 + (len(WORKER_PORTS) if has_workers(plan, region.name) else 0)
    return max(nodes + 1, len(control_rules(plan)) + 1 + to_control, len(pod_rules(plan)), storage, hub)


def _quota_counts(plan: FleetPlan, region: RegionPlan, groups: int) -> dict[str, tuple[int, int]]:
    """Return the needs that do not depend on the number of machines."""
    counts = {
        "VPCs": 1,
        "elastic addresses": nat_gateway_count(plan, region) + laptop_gateway_count(plan, region),
        "NAT gateways in a zone": int(plan.egress is not Egress.NONE),
        "interface endpoints in a VPC": len(plan.endpoints),
        "rules in a security group": _rules(plan, region),
        "routes in a route table": len(remote_networks(plan, region.name)) + _LOCAL_ROUTES,
        "transit gateways": int(has_transit(plan)),
        "VPN connections": len(plan.sites),
        "Auto Scaling groups": groups,
        "resolver endpoints": resolver_count(plan, region),
        "file systems": _file_systems(plan, region),
    }
    return {name: (count, count) for name, count in counts.items()}


# To the VPC itself, to the internet, and to the gateway endpoint of S3.
_LOCAL_ROUTES = 3


def _file_systems(plan: FleetPlan, region: RegionPlan) -> int:
    return sum(files.region == region.name for files in plan.files)
