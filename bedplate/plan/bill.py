"""What a fleet costs an hour at list price: machines by group and rung, their disks, and what stands beside them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan, Volume, together
from bedplate.plan.span import NOTHING, Span, total
from bedplate.plan.standing import Standing, standing, standing_volumes

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
