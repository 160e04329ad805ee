"""The page of the picture: header, address map, regions and sites, ladders, and legend."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby

from bedplate.picture.layout import (
    ROW,
    TOKEN_GAP,
    Cell,
    Segment,
    Shape,
    Word,
    cell_marks,
    cell_width,
    flowing,
    in_columns,
    segment_marks,
    spread,
)
from bedplate.picture.places import places
from bedplate.picture.svg import MARKETS, TO, Anchor, Face, Icon, Mark, Part, Rect, Sign, Text, fitted, painted, stacked
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan
from bedplate.plan.space import Span, is_nested, span_of
from bedplate.spec.network import Egress

LABEL_WIDTH, LADDERS_GAP = 340.0, 14.0


def ladders(plan: FleetPlan, room: float) -> Part:
    """Return the groups, one below the other, with their rungs in aligned columns."""
    groups = [tuple(pools) for _, pools in groupby(plan.pools, key=lambda pool: pool.group)]
    widest = max(cell_width(rung) for pools in groups for rung in _rungs(pools))
    return stacked((_ladder(pools, room, widest) for pools in groups), LADDERS_GAP)


def _ladder(pools: tuple[PoolPlan, ...], room: float, widest: float) -> Part:
    first = pools[0]
    rungs = in_columns(tuple(_rungs(pools)), room - LABEL_WIDTH, widest)
    types = ", ".join(first.types)
    facts = Word(_facts(first), Face.NOTE)
    name = fitted(first.group, Face.STRONG, LABEL_WIDTH - LADDERS_GAP - TOKEN_GAP - facts.width)
    words: tuple[Mark, ...] = (
        *cell_marks((Word(name, Face.STRONG), facts), 0, ROW / 2),
        Text(0, ROW + 10, fitted(types, Face.NOTE, LABEL_WIDTH - LADDERS_GAP), Face.NOTE, title=types),
    )
    return Part(room, max(rungs.height, 2 * ROW - 4), (*words, *rungs.at(LABEL_WIDTH, 0)))


def _facts(pool: PoolPlan) -> str:
    fabric = f", {pool.fabric.value}" if pool.fabric else ""
    return f"{pool.min}{TO}{pool.max} for {pool.use.value}{fabric}"


def _rungs(pools: tuple[PoolPlan, ...]) -> Iterator[Cell]:
    """Yield the numbered rungs; pools that differ only in their zone are one rung."""
    groups = groupby(pools, key=lambda pool: (pool.market, pool.region, pool.offer.reservation))
    for number, ((market, region, _), same) in enumerate(groups, start=1):
        rung = tuple(same)
        sign = Shape(MARKETS[market], title=f"{market.value}: {', '.join(pool.name for pool in rung)}")
        yield (Word(str(number), Face.NOTE), sign, Word(region), Word(_zones(rung), Face.NOTE))


def _zones(rung: tuple[PoolPlan, ...]) -> str:
    """Return the zone letters of a rung whose pools have one zone each."""
    if any(len(pool.zones) > 1 for pool in rung):
        return ""
    return "".join(zone.removeprefix(pool.region) for pool in rung for zone in pool.zones)


MEANINGS = {
    Sign.DISC: "on demand",
    Sign.RING: "spot",
    Sign.SQUARE: "reservation",
    Sign.DIAMOND: "capacity block",
    Sign.HOUSE: "home region",
    Sign.FILES: "file system",
    Sign.BUCKET: "bucket",
    Sign.NAMES: "a site's own names",
    Sign.LAPTOP: "laptop gateway",
    Sign.TUNNELS: "two tunnels",
    Sign.GATEWAY: "site gateway",
}


def legend(marks: tuple[Mark, ...], room: float) -> Part:
    """Return the meaning of each icon in the picture."""
    used = {mark.sign: mark.role for mark in marks if isinstance(mark, Icon)}
    cells = [(Shape(sign, used[sign]), Word(words, Face.NOTE)) for sign, words in MEANINGS.items() if sign in used]
    return flowing(cells, room)


BANDS, GUTTER, SUPERNET_GAP = 8, 104.0, 6.0
HIGH, LOW = 40.0, 22.0
ROLES = {"region": "region", "site": "site", "pods": "pods", "services": "services", "pool": "laptops"}


@dataclass(frozen=True, slots=True)
class Band:
    """A range of the supernet that is drawn as one bar."""

    span: Span
    segments: tuple[Segment, ...]


def supernet_map(plan: FleetPlan, room: float) -> Part:
    """Return the map of the supernet, with the fleet's blocks outside it below."""
    whole = span_of(plan.supernet)
    parts = [_band(band, room) for band in _bands(whole, tuple(_segments(plan)))]
    outside = tuple(_outside(plan))
    if outside:
        parts.append(_captioned("outside it", outside, room))
    return stacked(parts, SUPERNET_GAP)


def _segments(plan: FleetPlan) -> Iterator[Segment]:
    for path, block in {**plan.record.blocks, **plan.blocks}.items():
        if not is_nested(path) and block.subnet_of(plan.supernet):
            kind, _, place = path.partition("/")
            role = ROLES[kind] if path in plan.blocks else "held"
            name = _name(kind, place) if path in plan.blocks else f"held for {place or kind}"
            yield Segment(span_of(block), role, (name, str(block)), f"{name} {block}")


def _name(kind: str, place: str) -> str:
    return f"laptops, {place}" if kind == "pool" else place or kind


def _bands(whole: Span, segments: tuple[Segment, ...]) -> Iterator[Band]:
    """Yield the eighths of the supernet; neighbours that are free, or full of one block, are one band."""
    step = max(whole.size // BANDS, 1)
    eighths = [Span(first, first + step) for first in range(whole.first, whole.end, step)]
    inside = [(eighth, tuple(segment for segment in segments if _overlap(segment.span, eighth))) for eighth in eighths]
    for _, run in groupby(enumerate(inside), key=lambda item: _merge_key(item[0], *item[1])):
        rows = [row for _, row in run]
        yield Band(Span(rows[0][0].first, rows[-1][0].end), rows[0][1])


def _overlap(span: Span, other: Span) -> bool:
    return span.first < other.end and other.first < span.end


def _merge_key(number: int, eighth: Span, segments: tuple[Segment, ...]) -> object:
    """Return a key that neighbouring eighths share if they are drawn as one band."""
    if not segments:
        return "free"
    block = segments[0].span
    is_full = block.first <= eighth.first and eighth.end <= block.end
    return block if is_full else number


def _band(band: Band, room: float) -> Part:
    inner = room - GUTTER
    height = HIGH if band.segments else LOW
    placed = spread(band.segments, band.span, inner)
    frame = Rect(0, 0, inner, height, "free", 2)
    first = Text(0, height / 2 + 4, str(IPv4Address(band.span.first)), Face.FAINT)
    body = Part(inner, height, (frame, *segment_marks(placed, height), *_free(band, inner)))
    row = Part(room, height, (first, *body.at(GUTTER, 0)))
    captions = in_columns([_caption(item.segment) for item in placed if not item.is_named], inner)
    below = Part(room, captions.height, captions.at(GUTTER, 0))
    return stacked((row, below), 2) if captions.marks else row


def _free(band: Band, inner: float) -> Iterable[Mark]:
    if band.segments:
        return ()
    words = f"{band.span.size:,} addresses free"
    return (Text(inner / 2, LOW / 2 + 4, words, Face.LABEL, Anchor.MIDDLE),)


def _caption(segment: Segment) -> Cell:
    name, block = segment.lines
    return (Shape(Sign.SWATCH, segment.role), Word(name), Word(block, Face.CODE))


def _captioned(words: str, cells: Sequence[Cell], room: float) -> Part:
    row = flowing(cells, room - GUTTER)
    return Part(room, row.height, (Text(0, 14, words, Face.LABEL), *row.at(GUTTER, 0)))


def _outside(plan: FleetPlan) -> Iterator[Cell]:
    for site in plan.sites:
        if not site.lan.subnet_of(plan.supernet):
            yield (Shape(Sign.SWATCH, "site"), Word(site.name), Word(str(site.lan), Face.CODE))
    insides = [*(tunnel.inside for tunnel in plan.tunnels), *(direct.inside for direct in plan.site_tunnels)]
    if insides:
        yield (Shape(Sign.TUNNELS, "door"), Word(f"insides of {len(insides)} tunnels"), _range(insides))


def _range(blocks: Sequence[IPv4Network]) -> Word:
    """Return the first and the last address of some blocks."""
    first, last = min(blocks).network_address, max(blocks).broadcast_address
    return Word(f"{first} to {last}", Face.CODE)


WIDTH, MARGIN, GAP, HEAD = 1152.0, 32.0, 30.0, 14.0
ROOM = WIDTH - 2 * MARGIN
EGRESS = {
    Egress.SHARED: "one NAT gateway in each region",
    Egress.PER_ZONE: "one NAT gateway in each zone",
    Egress.NONE: "no way out to the internet",
}
LADDERS = "where machines come from"


def picture(plan: FleetPlan) -> str:
    """Return the picture as SVG; the same plan gives the same bytes."""
    return painted(page(plan), f"The fleet {plan.name}", described(plan))


def page(plan: FleetPlan) -> Part:
    """Return all marks of the picture."""
    sections = [
        _header(plan),
        _headed("Addresses", f"supernet {plan.supernet}", supernet_map(plan, ROOM)),
        _headed("Regions and sites" if plan.sites else "Regions", EGRESS[plan.egress], places(plan, ROOM)),
    ]
    if plan.pools:
        sections.append(_headed("Ladders", LADDERS, ladders(plan, ROOM)))
    content = stacked(sections, GAP)
    body = stacked((content, legend(content.marks, ROOM)), GAP)
    height = body.height + 2 * MARGIN
    background = Rect(0, 0, WIDTH, height, "page", 12)
    return Part(WIDTH, height, (background, *body.at(MARGIN, MARGIN)))


def described(plan: FleetPlan) -> str:
    """Return a text description of the picture, for screen readers."""
    regions = ", ".join(f"{region.name} ({region.block})" for region in plan.regions)
    sites = ", ".join(f"{site.name} ({site.lan})" for site in plan.sites) or "none"
    return f"Supernet {plan.supernet}. Regions: {regions}. Sites: {sites}. Interconnect: {plan.interconnect.value}."


def _header(plan: FleetPlan) -> Part:
    facts = f"account {plan.account} · {plan.domain} · {plan.owner}"
    cut = fitted(facts, Face.NOTE, ROOM)
    marks: tuple[Mark, ...] = (Text(0, 20, plan.name, Face.TITLE), Text(0, 42, cut, Face.NOTE))
    return Part(ROOM, 46, marks)


def _headed(words: str, aside: str, body: Part) -> Part:
    head = cell_marks((Word(words, Face.HEADING), Word(aside, Face.NOTE)), 0, HEAD / 2)
    return stacked((Part(body.width, HEAD, head), body), 10)
