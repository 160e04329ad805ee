"""Regions and sites as cards in rows, and the lines that connect them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from bedplate.picture.addresses import Band, Block
from bedplate.picture.template import ROW, Row, Word, height_of
from bedplate.plan.fleet import FleetPlan, RegionPlan, SitePlan
from bedplate.plan.pools import PoolPlan
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials, Use

TO = "\N{EN DASH}"  # between a minimum and a maximum
PADDING, HEAD, BAR, SEPARATOR = 10, 28, 30, 21  # heights of parts of a card, with the space below
MOST_COLUMNS, RAIL, APART = 3, 24, 26  # cards side by side; the distances of lines from cards and from each other


@dataclass(frozen=True, slots=True)
class Card:
    """A region, with the bar of its subnets, or a site; its tables are separated by lines."""

    title: Row
    subnets: Band | None
    tables: tuple[tuple[Row, ...], ...]

    @property
    def height(self) -> int:
        """The height of the card."""
        parts = (HEAD, BAR * bool(self.subnets), SEPARATOR * (len(self.tables) - 1), *map(height_of, self.tables))
        return 2 * PADDING + sum(parts)


def store_row(sign: str, title: str, name: str, facts: str) -> Row:
    """Return the row of a store."""
    return ((Word(name, sign=sign, title=title),), (Word(facts, "note"),))


def laptops_rows(plan: FleetPlan, place: str) -> tuple[Row, ...]:
    """Return the row of the laptop gateway of a region or site, if any."""
    blocks = (pool.block for pool in plan.laptops if pool.place == place)
    return tuple(((Word("laptops", sign="laptop"),), (Word(block, "code"),)) for block in blocks)


def tunnel_rows(insides: Iterable[tuple[str, object]]) -> tuple[Row, ...]:
    """Return a row for each remote end of tunnels, with their inside blocks."""
    ends: dict[str, list[Word]] = {}
    for end, inside in insides:
        ends.setdefault(end, []).append(Word(inside, "faint"))
    return tuple(((Word(end, sign="tunnels"),), tuple(words)) for end, words in ends.items())


def region_card(plan: FleetPlan, region: RegionPlan) -> Card:
    """Return the card of a region."""
    home = "home" if region.home else ""
    title = ((Word(region.name, "heading", home, home and "home region"),), (Word(region.block, "code"),))
    heads = ((Word("zone", "label"),), (Word("edge", "label", "edge"),), (Word("nodes", "label", "nodes"),))
    zones = (((Word(zone.name),), (Word(zone.edge, "code"),), (Word(zone.nodes, "code"),)) for zone in region.zones)
    tunnels = tunnel_rows((tunnel.site, tunnel.inside) for tunnel in plan.tunnels if tunnel.region == region.name)
    gateways = (*laptops_rows(plan, region.name), *tunnels)
    tables = ((heads, *zones), _machines(plan, region), tuple(_stores(plan, region)), gateways)
    subnets: list[Block] = []
    for zone in region.zones:
        subnets.append(Block(zone.edge, "edge", f"edge of {zone.name}", " "))
        subnets.append(Block(zone.nodes, "nodes", f"nodes of {zone.name}", _letter(zone.name, region.name)))
    bar = Band((region.block,), tuple(sorted(subnets, key=lambda block: block.first)))
    return Card(title, bar, tuple(filter(None, tables)))


def _letter(zone: str, region: str) -> str:
    """Return the letter of a zone."""
    return zone.removeprefix(region) or zone


def _machines(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    heads: Row = tuple((Word(head, "label"),) for head in ("group", "zones", "machines"))
    here = [pool for pool in plan.pools if pool.region == region.name]
    groups = groupby(here, key=lambda pool: (pool.group, pool.market, pool.rung_spec.reservation))
    rows = [_machines_row(tuple(pools)) for _, pools in groups]
    if plan.control_plane and region.home:
        members = plan.control_plane.members
        zones = "".join(sorted({_letter(member.zone, region.name) for member in members}))
        rows.insert(0, ((Word("control plane"),), (Word(zones, "note"),), (Word(len(members)),)))
    if plan.hub and plan.hub.region == region.name:
        rows.insert(0, ((Word("hub"),), (Word(_letter(plan.hub.zone, region.name), "note"),), (Word(1),)))
    return (heads, *rows) if rows else ()


def _machines_row(pools: tuple[PoolPlan, ...]) -> Row:
    zones = tuple(
        Word(
            "".join(_letter(zone, pool.region) for zone in pool.zones),
            "note",
            pool.market.value,
            f"{pool.name}: {pool.market.value}, {', '.join(pool.types)}",
        )
        for pool in pools
    )
    return ((Word(pools[0].group),), zones, (Word(f"{sum(pool.min for pool in pools)}{TO}{pools[0].max}"),))


def _stores(plan: FleetPlan, region: RegionPlan) -> Iterator[Row]:
    files, _, buckets = plan.stores
    for system in files:
        if system.region == region.name:
            yield store_row("files", "EFS", system.store, f"EFS on {system.mount}")
    for bucket in buckets:
        if bucket.region == region.name:
            kept = f"S3, {bucket.expire_days} days" if bucket.expire_days else "S3"
            yield store_row("bucket", f"s3://{bucket.name}", bucket.store, kept)


_DIALS = {Dials.SITE: "dials", Dials.AWS: "waits for AWS to dial"}


def site_card(plan: FleetPlan, site: SitePlan) -> Card:
    """Return the card of a site."""
    endpoint = (Word(site.public, "code"), Word(f"AS{site.asn}", "note"))
    network: list[Row] = [((Word(site.gateway, sign="gateway"), Word(_DIALS[site.dials], "note")), endpoint)]
    network += tunnel_rows((direct.other(site.name), direct.inside) for direct in plan.site_tunnels_of(site.name))
    if site.dns:
        servers = f"asked of {' '.join(map(str, site.dns.servers))}"
        network.append(((Word("names", sign="names", title=servers),), (Word(site.dns.domain, "code"),)))
    network += laptops_rows(plan, site.name)
    exports = tuple(
        store_row("files", f"{export.machine}:{export.export}", export.store, f"NFS on {export.mount}")
        for export in plan.exports
        if export.site == site.name
    )
    hub = plan.hub if plan.hub and plan.hub.place == site.name else None
    network += [((Word("hub"),), (Word(hub.address, "code"),))] if hub else []
    tables = (tuple(network), tuple(_site_machines(site)), exports)
    blocks = ", ".join(map(str, site.networks.values()))
    title = ((Word(site.name, "heading"),), (Word(blocks, "code"),))
    return Card(title, None, tuple(filter(None, tables)))


def _site_machines(site: SitePlan) -> Iterator[Row]:
    """Yield a row for each use of machines: their number, and their GPUs by model."""
    for use in (*sorted(Use), None):
        specs = [machine.spec for machine in site.machines.values() if machine.spec.use == use]
        models: Counter[str] = Counter()
        for gpus in filter(None, (spec.gpus for spec in specs)):
            models[gpus.model] += gpus.count
        gpu_text = ", ".join(f"{count} x {model}" for model, count in models.items())
        if specs:
            yield (
                (Word(f"machines for {use}" if use else "machines serving the site"),),
                (Word(len(specs)), *([Word(gpu_text, "note")] if models else [])),
            )


@dataclass(frozen=True, slots=True)
class Tier:
    """A row of cards, with the space above it, and the heights at which it starts and ends."""

    cards: tuple[Card, ...]
    space: int
    top: int
    bottom: int


# The height of a line, that of the edge which its branches lead to, and the number of cards there.
Rail = tuple[int, int, int]


def tiers(plan: FleetPlan) -> Iterator[tuple[Tier, ...]]:
    """Yield the rows of regions, then those of sites: as few rows as possible, of similar length."""
    most = max(len(plan.regions), len(plan.sites))
    columns = ceil(most / ceil(most / MOST_COLUMNS))
    mesh, tunnels = RAIL * is_meshed(plan), RAIL * bool(plan.sites)
    cards = [region_card(plan, region) for region in plan.regions]
    regions = tuple(_tiers(cards, columns, 0, (mesh and ROW + mesh, mesh + tunnels + APART)))
    yield regions
    cards = [site_card(plan, site) for site in plan.sites]
    yield tuple(_tiers(cards, columns, regions[-1].bottom, (2 * RAIL, 2 * RAIL)))


def _tiers(cards: Sequence[Card], columns: int, bottom: int, spaces: tuple[int, int]) -> Iterator[Tier]:
    """Yield the cards in rows below a height, with the space above the first row and between rows."""
    for start in range(0, len(cards), columns):
        row, space = tuple(cards[start : start + columns]), spaces[bool(start)]
        top, bottom = bottom + space, bottom + space + max(card.height for card in row)
        yield Tier(row, space, top, bottom)


def is_meshed(plan: FleetPlan) -> bool:
    """Return whether regions are connected with each other."""
    return plan.interconnect is not Interconnect.NONE and len(plan.regions) > 1


def rails(tiers: Iterable[Tier], *, is_below: bool = False) -> Iterator[Rail]:
    """Yield the line above or below each row of cards."""
    for tier in tiers:
        height, edge = (tier.bottom + RAIL, tier.bottom) if is_below else (tier.top - RAIL, tier.top)
        yield (height, edge, len(tier.cards))
