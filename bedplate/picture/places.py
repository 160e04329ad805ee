"""The middle of the picture: regions and sites as cards, and the lines that connect them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bedplate.picture.layout import (
    AddressBar,
    Card,
    Cell,
    Columns,
    Piece,
    Segment,
    Separator,
    Shape,
    Table,
    Tier,
    Word,
    columns,
    placed,
)
from bedplate.picture.svg import MARKETS, TO, Face, Line, Mark, Part, Rect, Sign, Text
from bedplate.plan.fleet import FleetPlan, RegionPlan, SitePlan, ZonePlan
from bedplate.plan.pools import PoolPlan
from bedplate.plan.space import span_of
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials, Use

Row = tuple[Cell, ...]


def laptops_row(plan: FleetPlan, place: str) -> tuple[Row, ...]:
    """Return the row of the laptop gateway of a region or site, if any."""
    return tuple(
        ((Shape(Sign.LAPTOP, "door"), Word("laptops")), (Word(str(pool.block), Face.CODE),))
        for pool in plan.laptops
        if pool.place == place
    )


def store_row(sign: Sign, title: str, name: str, facts: str) -> Row:
    """Return the row of a store."""
    return ((Shape(sign, title=title), Word(name)), (Word(facts, Face.NOTE),))


def gateway_rows(plan: FleetPlan, region: str) -> tuple[Row, ...]:
    """Return a row for each site with tunnels to the region, with their inside blocks."""
    return tuple(
        ((Shape(Sign.TUNNELS, "door"), Word(site.name)), _insides(plan, site.name, region))
        for site in plan.sites
        if any((tunnel.site, tunnel.region) == (site.name, region) for tunnel in plan.tunnels)
    )


def direct_rows(plan: FleetPlan, site: str) -> tuple[Row, ...]:
    """Return a row for each site that has a direct tunnel to this site, with its inside block."""
    return tuple(
        ((Shape(Sign.TUNNELS, "door"), Word(direct.other(site))), (Word(str(direct.inside), Face.FAINT),))
        for direct in plan.site_tunnels_of(site)
    )


def _insides(plan: FleetPlan, site: str, region: str) -> Cell:
    tunnels = (tunnel for tunnel in plan.tunnels if (tunnel.site, tunnel.region) == (site, region))
    return tuple(Word(str(tunnel.inside), Face.FAINT) for tunnel in tunnels)


def region_card(plan: FleetPlan, region: RegionPlan) -> Card:
    """Return the card of a region."""
    sections = (_pools(plan, region), _stores(plan, region), _gateways(plan, region))
    pieces: list[Piece] = [Table((_title(region),)), _bar(region), Table((_HEADS, *map(_zone, region.zones)))]
    for rows in sections:
        if rows:
            pieces += (Separator(), Table(rows))
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


def _bar(region: RegionPlan) -> AddressBar:
    nodes = (
        Segment(span_of(zone.nodes), "nodes", (_letter(zone.name, region.name),), f"nodes of {zone.name} {zone.nodes}")
        for zone in region.zones
    )
    edges = (Segment(span_of(zone.edge), "edge", (), f"edge of {zone.name} {zone.edge}") for zone in region.zones)
    return AddressBar(span_of(region.block), (*edges, *nodes))


def _letter(zone: str, region: str) -> str:
    """Return the letter of a zone."""
    return zone.removeprefix(region) or zone


def _pools(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    here = [pool for pool in plan.pools if pool.region == region.name]
    groups = groupby(here, key=lambda pool: (pool.group, pool.market, pool.offer.reservation))
    rows = (*_control_plane(plan, region), *(_pool_row(tuple(pools)) for _, pools in groups))
    return (_POOL_HEADS, *rows) if rows else ()


def _control_plane(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    if plan.control_plane is None or not region.home:
        return ()
    zones = "".join(sorted({_letter(member.zone, region.name) for member in plan.control_plane.members}))
    return (((Word("control plane"),), (Word(zones, Face.NOTE),), (Word(str(len(plan.control_plane.members))),)),)


def _pool_row(pools: tuple[PoolPlan, ...]) -> Row:
    first = pools[0]
    places = tuple(token for pool in pools for token in _pool(pool))
    count = f"{sum(pool.min for pool in pools)}{TO}{first.max}"
    return ((Word(first.group),), places, (Word(count),))


def _pool(pool: PoolPlan) -> Iterator[Shape | Word]:
    """Yield an icon for the purchase option, and the letters of the pool's zones."""
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


def _gateways(plan: FleetPlan, region: RegionPlan) -> tuple[Row, ...]:
    return (*laptops_row(plan, region.name), *gateway_rows(plan, region.name))


DIALS = {Dials.SITE: "dials", Dials.AWS: "waits for AWS to dial"}
USES = {Use.KUBERNETES: "for kubernetes", Use.SSH: "for ssh", None: "serving the site"}


def site_card(plan: FleetPlan, site: SitePlan) -> Card:
    """Return the card of a site."""
    title: Row = ((Word(site.name, Face.HEADING),), (Word(str(site.lan), Face.CODE),))
    network = (_gateway(site), *direct_rows(plan, site.name), *_names(site), *laptops_row(plan, site.name))
    pieces: list[Piece] = [Table((title,)), Table(network)]
    for rows in (tuple(_machine_rows(site)), _exports(plan, site)):
        if rows:
            pieces += (Separator(), Table(rows))
    return Card(tuple(pieces))


def _gateway(site: SitePlan) -> Row:
    endpoint = (Word(str(site.public), Face.CODE), Word(f"AS{site.asn}", Face.NOTE))
    return ((Shape(Sign.GATEWAY, "door"), Word(site.gateway), Word(DIALS[site.dials], Face.NOTE)), endpoint)


def _names(site: SitePlan) -> tuple[Row, ...]:
    """Return the row of the site's private domain, if any."""
    if site.dns is None:
        return ()
    servers = " ".join(map(str, site.dns.servers))
    return (((Shape(Sign.NAMES, "door", f"asked of {servers}"), Word("names")), (Word(site.dns.domain, Face.CODE),)),)


def _exports(plan: FleetPlan, site: SitePlan) -> tuple[Row, ...]:
    return tuple(
        store_row(Sign.FILES, f"{export.machine}:{export.export}", export.store, f"NFS on {export.mount}")
        for export in plan.exports
        if export.site == site.name
    )


def _machine_rows(site: SitePlan) -> Iterator[Row]:
    """Yield a row for each use of machines: their number, and their GPUs by model."""
    for use, words in USES.items():
        specs = [machine.spec for machine in site.machines.values() if machine.spec.use == use]
        models: Counter[str] = Counter()
        for gpus in filter(None, (spec.gpus for spec in specs)):
            models[gpus.model] += gpus.count
        gpu_text = ", ".join(f"{count} x {model}" for model, count in models.items())
        if specs:
            yield ((Word(f"machines {words}"),), (Word(str(len(specs))), Word(gpu_text, Face.NOTE)))


RAIL, HUB, TWIN = 24.0, 9.0, 2.5
MESH_AT, TUNNEL_AT = 26.0, 30.0  # from a card's left and right edge


def mesh(tiers: Sequence[Tier], trunk: float) -> Iterator[Mark]:
    """Yield the line above each tier, its branches to the cards, and the trunk at the left between the lines."""
    has_trunk = len(tiers) > 1
    for tier in tiers:
        y, taps = tier.y - RAIL, _mesh_taps(tier)
        start = trunk if has_trunk else taps[0]
        yield Line(start, y, taps[-1] - start, 0, "mesh")
        for x in taps:
            yield Line(x, y, 0, RAIL, "mesh")
    if has_trunk:
        yield Line(trunk, tiers[0].y - RAIL, 0, tiers[-1].y - tiers[0].y, "mesh")


def mesh_ends(tiers: Sequence[Tier]) -> Iterator[Mark]:
    """Yield the round ends of the branches, drawn over the cards."""
    for tier in tiers:
        for x in _mesh_taps(tier):
            yield Rect(x - HUB / 2, tier.y - HUB / 2, HUB, HUB, "hub", HUB / 2)


def tunnels(regions: Sequence[Tier], sites: Sequence[Tier], trunk: float) -> Iterator[Mark]:
    """Yield the double lines, their branches, and the trunk at the right between them.

    The first tier of sites shares a line with the last tier of regions.
    """
    rails = [*(tier.bottom + RAIL for tier in regions), *(tier.y - RAIL for tier in sites[1:])]
    attached = (*((tier,) for tier in regions[:-1]), (regions[-1], sites[0]), *((tier,) for tier in sites[1:]))
    for y, tiers in zip(rails, attached, strict=True):
        taps = [x for tier in tiers for x in _tunnel_taps(tier)]
        yield from _twin(min(taps), y, (trunk if len(rails) > 1 else max(taps)) - min(taps), 0)
    for tier in regions:
        for x in _tunnel_taps(tier):
            yield from _twin(x, tier.bottom, 0, RAIL)
    for tier in sites:
        for x in _tunnel_taps(tier):
            yield from _twin(x, tier.y - RAIL, 0, RAIL)
    if len(rails) > 1:
        yield from _twin(trunk, rails[0], 0, rails[-1] - rails[0])


def tunnel_ends(regions: Sequence[Tier], sites: Sequence[Tier]) -> Iterator[Mark]:
    """Yield the square ends of the tunnels, drawn over the cards."""
    borders = (*((tier, tier.bottom) for tier in regions), *((tier, tier.y) for tier in sites))
    for tier, y in borders:
        for x in _tunnel_taps(tier):
            yield Rect(x - HUB / 2, y - HUB / 2, HUB, HUB, "end", 1)


def _mesh_taps(tier: Tier) -> list[float]:
    return [tier.columns.x(number) + MESH_AT for number in range(len(tier.cards))]


def _tunnel_taps(tier: Tier) -> list[float]:
    return [tier.columns.x(number) + tier.columns.width - TUNNEL_AT for number in range(len(tier.cards))]


def _twin(x: float, y: float, dx: float, dy: float) -> Iterator[Mark]:
    """Yield two lines side by side."""
    aside, below = (TWIN, 0.0) if dy else (0.0, TWIN)
    for side in (-1, 1):
        yield Line(x + side * aside, y + side * below, dx, dy, "tunnel")


SIDE, TRUNK, ABOVE, APART = 14.0, 4.0, 20.0, 26.0
MESHES = {
    Interconnect.TRANSIT: "transit gateways, each peered with every other",
    Interconnect.PEERING: "VPC peerings, each region with every other",
}
TUNNELS = "two tunnels from each site to each region"


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of the cards; `mesh` is the caption of the lines between regions, empty without such lines."""

    regions: tuple[Tier, ...]
    sites: tuple[Tier, ...]
    mesh: str
    room: float


def places(plan: FleetPlan, room: float) -> Part:
    """Return the cards of all regions and sites, with the lines between them."""
    layout = _layout(plan, room)
    tiers = (*layout.regions, *layout.sites)
    cards = (mark for tier in tiers for mark in tier.marks())
    return Part(room, tiers[-1].bottom, (*_mesh(layout), *_tunnels(layout), *cards, *_ends(layout)))


def _layout(plan: FleetPlan, room: float) -> Layout:
    regions = tuple(region_card(plan, region) for region in plan.regions)
    sites = tuple(site_card(plan, site) for site in plan.sites)
    caption = MESHES.get(plan.interconnect, "") if len(regions) > 1 else ""
    grid = _columns(regions, sites, room)
    top = ABOVE + RAIL if caption else 0.0
    above = placed(regions, grid, top, RAIL * (bool(caption) + bool(sites)) + APART)
    below = placed(sites, grid, above[-1].bottom + 2 * RAIL, RAIL + APART)
    return Layout(above, below, caption, room)


def _columns(regions: tuple[Card, ...], sites: tuple[Card, ...], room: float) -> Columns:
    """Return columns over the whole width, less a margin if there is a trunk."""
    natural = max(card.natural for card in (*regions, *sites))
    most = max(len(regions), len(sites))
    wide = columns(natural, most, 0, room)
    return wide if wide.count == most else columns(natural, most, SIDE, room - 2 * SIDE)


def _mesh(layout: Layout) -> Iterator[Mark]:
    if layout.mesh:
        first = layout.regions[0]
        yield Text(first.columns.x(0), first.y - RAIL - 8, layout.mesh, Face.NOTE)
        yield from mesh(layout.regions, TRUNK)


def _tunnels(layout: Layout) -> Iterator[Mark]:
    if layout.sites:
        last = layout.regions[-1]
        yield Text(last.columns.x(0), last.bottom + RAIL + 4, TUNNELS, Face.NOTE)
        yield from tunnels(layout.regions, layout.sites, layout.room - TRUNK)


def _ends(layout: Layout) -> Iterator[Mark]:
    if layout.mesh:
        yield from mesh_ends(layout.regions)
    if layout.sites:
        yield from tunnel_ends(layout.regions, layout.sites)
