"""The map of the supernet: its eighths as bands, each block where it lies and as long as it is."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby

from bedplate.picture.bar import Drawn, Segment, marks, spread
from bedplate.picture.flow import flowing, in_columns
from bedplate.picture.marks import Anchor, Mark, Part, Rect, Text, stacked
from bedplate.picture.measure import Face
from bedplate.picture.signs import Sign
from bedplate.picture.table import Cell, Shape, Word
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.paths import is_nested
from bedplate.plan.space import Span, span_of

BANDS, GUTTER, GAP = 8, 104.0, 6.0
HIGH, LOW = 40.0, 22.0
ROLES = {"region": "region", "site": "site", "pods": "pods", "services": "services", "pool": "laptops"}


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the supernet that is drawn in one line."""

    span: Span
    segments: tuple[Segment, ...]


def supernet_map(plan: FleetPlan, room: float) -> Part:
    """Return the map, and below it what the fleet has outside its supernet."""
    whole = span_of(plan.supernet)
    bands = _bands(whole, tuple(_segments(plan)))
    drawn = [_band(band, room) for band in bands]
    outside = tuple(_outside(plan))
    if outside:
        drawn.append(_captioned("outside it", outside, room))
    return stacked(drawn, GAP)


def _segments(plan: FleetPlan) -> Iterator[Segment]:
    known = {**plan.record.blocks, **plan.blocks}
    for path, block in known.items():
        if not is_nested(path) and block.subnet_of(plan.supernet):
            kind, _, place = path.partition("/")
            role = ROLES[kind] if path in plan.blocks else "held"
            name = _name(kind, place) if path in plan.blocks else f"held for {place or kind}"
            yield Segment(span_of(block), role, (name, str(block)), f"{name} {block}")


def _name(kind: str, place: str) -> str:
    return f"laptops, {place}" if kind == "pool" else place or kind


def _bands(whole: Span, segments: tuple[Segment, ...]) -> Iterator[Band]:
    """Yield the eighths of the supernet; neighbours that one block fills, or none, come as one band."""
    step = max(whole.size // BANDS, 1)
    eighths = [Span(first, first + step) for first in range(whole.first, whole.end, step)]
    inside = [(eighth, tuple(one for one in segments if _meet(one.span, eighth))) for eighth in eighths]
    for _, run in groupby(enumerate(inside), key=lambda item: _likeness(item[0], *item[1])):
        rows = [row for _, row in run]
        yield Band(Span(rows[0][0].first, rows[-1][0].end), rows[0][1])


def _meet(one: Span, other: Span) -> bool:
    return one.first < other.end and other.first < one.end


def _likeness(number: int, eighth: Span, held: tuple[Segment, ...]) -> object:
    """Return what neighbouring eighths share when they may be drawn as one."""
    if not held:
        return "free"
    is_whole = held[0].span.first <= eighth.first and eighth.end <= held[0].span.end
    return held[0].span if is_whole else number


def _band(band: Band, room: float) -> Part:
    inner = room - GUTTER
    height = HIGH if band.segments else LOW
    drawn = spread(band.segments, band.span, inner)
    frame = Rect(0, 0, inner, height, "free", 2)
    first = Text(0, height / 2 + 4, str(IPv4Address(band.span.first)), Face.FAINT)
    body = Part(inner, height, (frame, *marks(drawn, height), *_free(band, inner)))
    row = Part(room, height, (first, *body.at(GUTTER, 0)))
    captions = in_columns([_caption(one) for one in drawn if not one.is_named], inner)
    below = Part(room, captions.height, captions.at(GUTTER, 0))
    return stacked((row, below), 2) if captions.marks else row


def _free(band: Band, inner: float) -> Iterable[Mark]:
    if band.segments:
        return ()
    words = f"{band.span.size:,} addresses free"
    return (Text(inner / 2, LOW / 2 + 4, words, Face.LABEL, Anchor.MIDDLE),)


def _caption(one: Drawn) -> Cell:
    name, block = one.segment.lines
    return (Shape(Sign.SWATCH, one.segment.role), Word(name), Word(block, Face.CODE))


def _captioned(words: str, cells: Sequence[Cell], room: float) -> Part:
    row = flowing(cells, room - GUTTER)
    return Part(room, row.height, (Text(0, 14, words, Face.LABEL), *row.at(GUTTER, 0)))


def _outside(plan: FleetPlan) -> Iterator[Cell]:
    for site in plan.sites:
        if not site.lan.subnet_of(plan.supernet):
            yield (Shape(Sign.SWATCH, "site"), Word(site.name), Word(str(site.lan), Face.CODE))
    insides = [*(each.inside for each in plan.tunnels), *(each.inside for each in plan.directs)]
    if insides:
        yield (Shape(Sign.TUNNELS, "door"), Word(f"insides of {len(insides)} tunnels"), _range(insides))


def _range(blocks: Iterable[IPv4Network]) -> Word:
    """Return the addresses from the first to the last of some blocks."""
    known = sorted(blocks)
    first, last = known[0].network_address, known[-1].broadcast_address
    return Word(f"{first} to {last}", Face.CODE)
