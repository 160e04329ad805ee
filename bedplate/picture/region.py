"""The card of a region: its block, its zones' subnets, its pools, and what else stands in it."""

from collections.abc import Iterator
from itertools import groupby

from bedplate.picture.bar import Segment
from bedplate.picture.card import Card, Piece, Rule, Stretch
from bedplate.picture.measure import TO, Face
from bedplate.picture.place import gateway_rows, laptops_row, store_row
from bedplate.picture.signs import MARKETS, Sign
from bedplate.picture.table import Cell, Shape, Table, Word
from bedplate.plan.fleet import FleetPlan, RegionPlan, ZonePlan
from bedplate.plan.pool import PoolPlan
from bedplate.plan.space import span_of

Row = tuple[Cell, ...]


def region_card(plan: FleetPlan, region: RegionPlan) -> Card:
    """Return the card of one region of the plan."""
    sections = (_pools(plan, region), _stores(plan, region), _doors(plan, region))
    pieces: list[Piece] = [Table((_title(region),)), _bar(region), Table((_HEADS, *map(_zone, region.zones)))]
    for rows in sections:
        if rows:
            pieces += (Rule(), Table(rows))
    return Card(tuple(pieces))


_POOL_HEADS: Row = tuple((Word(head, Face.LABEL),) for head in ("group", "zones", "machines"))
_HEADS: Row = (
    (Word("zone", Face.LABEL),),
    (Shape(Sign.SWATCH, "edge"), Word("edge", Face.LABEL)),
    (Shape(Sign.SWATCH, "nodes"), Word("nodes", Face.LABEL)),
)


def _title(region: RegionPlan) -> Row:
    home: Cell = (Shape(Sign.HOUSE, title="home region"),) if region.home else ()
    return ((*home, Word(region.name, Face.HEADING)), (Word(str(region.block), Face.CODE),))


def _zone(zone: ZonePlan) -> Row:
    return (
        (Word(zone.name),),
        (Word(str(zone.edge), Face.CODE),),
        (Word(str(zone.nodes), Face.CODE),),
    )


def _bar(region: RegionPlan) -> Stretch:
    nodes = (
        Segment(span_of(zone.nodes), "nodes", (_letter(zone.name, region.name),), f"nodes of {zone.name} {zone.nodes}")
        for zone in region.zones
    )
    edges = (Segment(span_of(zone.edge), "edge", (), f"edge of {zone.name} {zone.edge}") for zone in region.zones)
    return Stretch(span_of(region.block), (*edges, *nodes))


def _letter(zone: str, region: str) -> str:
    """Return what tells a zone from the others of its region."""
    return zone.removeprefix(region) or zone


def _pools(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    here = [pool for pool in plan.pools if pool.region == region.name]
    alike = groupby(here, key=lambda pool: (pool.group, pool.market, pool.offer.reservation))
    rows = tuple(_pool_row(tuple(pools)) for _, pools in alike)
    return (_POOL_HEADS, *rows) if rows else ()


def _pool_row(pools: tuple[PoolPlan, ...]) -> Row:
    first = pools[0]
    places = tuple(token for pool in pools for token in _pool(pool))
    count = f"{sum(pool.min for pool in pools)}{TO}{first.max}"
    return ((Word(first.group),), places, (Word(count),))


def _pool(pool: PoolPlan) -> Iterator[Shape | Word]:
    """Yield a sign for the market, and the zones that the pool spans."""
    title = f"{pool.name}: {pool.market.value}, {', '.join(pool.types)}"
    yield Shape(MARKETS[pool.market], title=title)
    yield Word("".join(_letter(zone, pool.region) for zone in pool.zones), Face.NOTE)


def _stores(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    files = (
        store_row(Sign.FILES, "EFS", files.store, f"EFS on {files.mount}")
        for files in plan.files
        if files.region == region.name
    )
    buckets = (
        store_row(Sign.BUCKET, f"s3://{bucket.name}", bucket.store, _kept(bucket.expire_days))
        for bucket in plan.buckets
        if bucket.region == region.name
    )
    return (*files, *buckets)


def _kept(expire_days: int | None) -> str:
    return f"S3, {expire_days} days" if expire_days else "S3"


def _doors(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    return (*laptops_row(plan, region.name), *gateway_rows(plan, region.name))
