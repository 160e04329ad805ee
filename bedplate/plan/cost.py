"""What something costs an hour, from the least to the most."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.tables import HOURS_OF_MONTH
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import asks_here, has_transit
from bedplate.plan.pools import PoolPlan, Volume, together
from bedplate.spec.network import Egress

# List prices have at most five decimals; a sum of floats must not show more.
_DECIMALS = 5


@dataclass(frozen=True, slots=True)
class Span:
    """USD an hour, at minimum and at maximum."""

    min: float
    max: float

    @property
    def monthly(self) -> "Span":
        """The same for a month of 730 hours."""
        return Span(round(self.min * HOURS_OF_MONTH, 2), round(self.max * HOURS_OF_MONTH, 2))


NOTHING = Span(0.0, 0.0)


def total(spans: Iterable[Span]) -> Span:
    """Return the sum of spans."""
    every = tuple(spans)
    return Span(round(sum(each.min for each in every), _DECIMALS), round(sum(each.max for each in every), _DECIMALS))


# OpenVPN works on one core, so two are enough; every region offers this type, and its network keeps its pace.
GATEWAY_TYPE = "c6in.large"
GATEWAY_VOLUME = Volume(16)
CONTROL_VOLUME = Volume(50)
# etcd holds 8 GiB at the most, and writes its snapshots beside them. Source: etcd documentation, "System limits".
ETCD_VOLUME = Volume(32)
# AWS wants a resolver endpoint in two zones.
RESOLVER_ADDRESSES = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """So many of one thing in a region: `rate` names a rate of the catalogue, or the type of a machine for `work`."""

    rate: str
    region: str
    count: int
    work: str = ""

    @property
    def what(self) -> str:
        """What it is called on a bill."""
        return f"{self.work}, {self.rate}" if self.work else self.rate


def standing(plan: FleetPlan) -> tuple[Standing, ...]:
    """Return what stands in each region, machines of pools and volumes left out; nothing that counts none."""
    every = (each for region in plan.regions for each in _in_region(plan, region))
    return tuple(each for each in every if each.count)


def _in_region(plan: FleetPlan, region: RegionPlan) -> Iterator[Standing]:
    gateways, sites = laptop_gateways(plan, region), len(plan.sites)
    nat = nat_gateways(plan, region)
    counts = {
        "nat-gateway": nat,
        "public-address": nat + gateways,
        "transit-attachment": _attachments(plan),
        "vpn-connection": sites,
        "resolver-address": RESOLVER_ADDRESSES * resolvers(plan, region),
        "interface-endpoint": len(plan.endpoints) * len(region.zones),
        "key": 2,
        "alarm": _alarms(plan, region, nat + gateways),
    }
    yield from (Standing(rate, region.name, count) for rate, count in counts.items())
    yield Standing(GATEWAY_TYPE, region.name, gateways, "laptop gateway")
    if region.home:
        yield from _at_home(plan, region.name)


def _at_home(plan: FleetPlan, home: str) -> Iterator[Standing]:
    yield Standing("key", home, 1)
    yield Standing("secret", home, len(plan.sites) * len(plan.regions))
    yield Standing("hosted-zone", home, 1 + len(reverse_zones(plan)))
    if plan.control_plane:
        yield Standing(plan.control_plane.type, home, len(plan.control_plane.members), "control plane")


@dataclass(frozen=True, slots=True)
class StandingVolume:
    """So many volumes of one kind in a region, beside those of pools."""

    what: str
    region: str
    count: int
    volume: Volume


def standing_volumes(plan: FleetPlan) -> tuple[StandingVolume, ...]:
    """Return the volumes of the machines that the fleet keeps for itself."""
    members, home = len(plan.control_plane.members) if plan.control_plane else 0, plan.home.name
    every = (
        *(
            StandingVolume("laptop gateway, disk", region.name, laptop_gateways(plan, region), GATEWAY_VOLUME)
            for region in plan.regions
        ),
        StandingVolume("control plane, disks", home, members, CONTROL_VOLUME),
        StandingVolume("control plane, etcd", home, members, ETCD_VOLUME),
    )
    return tuple(each for each in every if each.count)


def nat_gateways(plan: FleetPlan, region: RegionPlan) -> int:
    """Return how many NAT gateways a region has."""
    return {Egress.SHARED: 1, Egress.PER_ZONE: len(region.zones), Egress.NONE: 0}[plan.egress]


def reverse_zones(plan: FleetPlan) -> frozenset[str]:
    """Return the reverse zones, of 256 addresses each, that hold a machine of a site."""
    return frozenset(address.reverse_pointer.partition(".")[2] for address in plan.site_addresses.values())


def resolvers(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the resolver endpoints of a region: one that answers, one that asks the sites' own servers."""
    return asks_here(plan, region) + any(site.dns for site in plan.sites)


def laptop_gateways(plan: FleetPlan, region: RegionPlan) -> int:
    """Return how many gateways for laptops a region has."""
    return sum(pool.place == region.name for pool in plan.laptops)


def _attachments(plan: FleetPlan) -> int:
    """Return the attachments of one region's transit gateway: its VPC, each other region, each site.

    Each end of a peering is paid for by itself.
    """
    return len(plan.regions) + len(plan.sites) if has_transit(plan) else 0


def _alarms(plan: FleetPlan, region: RegionPlan, gateways: int) -> int:
    groups = sum(pool.region == region.name for pool in plan.pools)
    if region.home and plan.control_plane:
        groups += len(plan.control_plane.members)
    return gateways + groups + len(plan.sites)


# What gp3 has without paying more. Source: https://aws.amazon.com/ebs/pricing/.
_FREE = Volume(0)


@dataclass(frozen=True, slots=True)
class Line:
    """So many of one thing in one region, and what they cost an hour."""

    what: str
    region: str
    count: int
    usd: float


@dataclass(frozen=True, slots=True)
class Bill:
    """USD an hour: at the minimum of every group with its cheapest type, and at its maximum with its dearest.

    The maximum is an upper bound: spot, reservations and cheaper types stay below it, and a group may stand in
    any of the regions of its ladder, so that those of regions add up to more than the fleet's. `groups` and
    `rungs` (by pool) are machines alone; `disks` are their root volumes, `lines` what stands whatever the pools
    hold. Types without a price are in `unknown`, not in the sums.
    """

    hourly: Span
    groups: Mapping[str, Span]
    rungs: Mapping[str, Span]
    regions: Mapping[str, Span]
    disks: Span
    lines: tuple[Line, ...]
    unknown: tuple[str, ...]
    date: str
    region: str


def bill(plan: FleetPlan, catalog: Catalog) -> Bill:
    """Return what a fleet costs, at the prices of one region and day."""
    groups = {name: tuple(pools) for name, pools in groupby(plan.pools, key=lambda pool: pool.group)}
    lines = tuple(_lines(plan, catalog))
    machines = {name: _machines(pools, catalog) for name, pools in groups.items()}
    disks = total(_disks(pools, catalog) for pools in groups.values())
    fixed = _fixed(lines)
    return Bill(
        hourly=total((*machines.values(), disks, fixed)),
        groups=MappingProxyType(machines),
        rungs=MappingProxyType({pool.name: _machines((pool,), catalog) for pool in plan.pools}),
        regions=MappingProxyType({each.name: _region(plan, each.name, lines, catalog) for each in plan.regions}),
        disks=disks,
        lines=lines,
        unknown=_unknown(plan, catalog),
        date=catalog.price_date,
        region=catalog.price_region,
    )


def _machines(pools: tuple[PoolPlan, ...], catalog: Catalog) -> Span:
    """Return what the machines of one group cost, over some of its pools: all of them share its maximum."""
    prices = [price for name in pools[0].types if (price := catalog.price(name)) is not None]
    least, most = _counts(pools)
    return total([Span(least * min(prices, default=0.0), most * max(prices, default=0.0))])


def _disks(pools: tuple[PoolPlan, ...], catalog: Catalog) -> Span:
    each = _volume(pools[0].volume, catalog)
    least, most = _counts(pools)
    return Span(least * each, most * each)


def _counts(pools: tuple[PoolPlan, ...]) -> tuple[int, int]:
    return sum(pool.min for pool in pools), together(pools)


def _volume(volume: Volume, catalog: Catalog) -> float:
    rates = catalog.rates
    return (
        volume.gib * rates.get("volume-gib", 0.0)
        + (volume.iops - _FREE.iops) * rates.get("volume-iops", 0.0)
        + (volume.throughput - _FREE.throughput) * rates.get("volume-throughput", 0.0)
    )


def _lines(plan: FleetPlan, catalog: Catalog) -> Iterator[Line]:
    for each in standing(plan):
        yield Line(each.what, each.region, each.count, each.count * _rate(each, catalog))
    for disks in standing_volumes(plan):
        yield Line(disks.what, disks.region, disks.count, disks.count * _volume(disks.volume, catalog))


def _rate(each: Standing, catalog: Catalog) -> float:
    return catalog.rates.get(each.rate) or catalog.price(each.rate) or 0.0


def _fixed(lines: Iterable[Line]) -> Span:
    usd = sum(line.usd for line in lines)
    return Span(usd, usd)


def _region(plan: FleetPlan, name: str, lines: Iterable[Line], catalog: Catalog) -> Span:
    here = [pool for pool in plan.pools if pool.region == name]
    groups = [tuple(pools) for _, pools in groupby(here, key=lambda pool: pool.group)]
    machines = (span for pools in groups for span in (_machines(pools, catalog), _disks(pools, catalog)))
    return total((NOTHING, *machines, _fixed(line for line in lines if line.region == name)))


def _unknown(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    pooled = {name for pool in plan.pools for name in pool.types}
    types = pooled | {each.rate for each in standing(plan) if each.work}
    return tuple(sorted(name for name in types if catalog.price(name) is None))
