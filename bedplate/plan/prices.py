"""What the pools of a fleet cost an hour, at the list price for machines on demand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan


@dataclass(frozen=True, slots=True)
class Span:
    """USD an hour: `min` with the minimum of the cheapest type, `max` with the maximum of the dearest.

    `max` is an upper bound: spot, reservations and cheaper types of the same group stay below it. Machines
    alone are counted, not disks, traffic or gateways.
    """

    min: float
    max: float


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """The spans of a fleet and of each group; types without a price are in `unknown`, not in the sums."""

    hourly: Span
    groups: Mapping[str, Span]
    unknown: tuple[str, ...]
    date: str
    region: str


def price_span(plan: FleetPlan, catalog: Catalog) -> PriceSpan:
    """Return what the fleet costs at its minimum and its maximum, at the prices of one region and day."""
    named = groupby(plan.pools, key=lambda pool: pool.group)
    groups = {name: _span(tuple(pools), catalog) for name, pools in named}
    types = sorted({name for pool in plan.pools for name in pool.types})
    return PriceSpan(
        hourly=Span(_sum(span.min for span in groups.values()), _sum(span.max for span in groups.values())),
        groups=MappingProxyType(groups),
        unknown=tuple(name for name in types if catalog.price(name) is None),
        date=catalog.price_date,
        region=catalog.price_region,
    )


def _span(pools: tuple[PoolPlan, ...], catalog: Catalog) -> Span:
    prices = [price for name in pools[0].types if (price := catalog.price(name)) is not None]
    # Every pool may grow to its group's maximum, but the group as a whole only once.
    least, most = sum(pool.min for pool in pools), max(pool.max for pool in pools)
    return Span(_sum([least * min(prices, default=0.0)]), _sum([most * max(prices, default=0.0)]))


def _sum(prices: Iterable[float]) -> float:
    # List prices have at most five decimals; a sum of floats must not show more.
    return round(sum(prices), 5)
