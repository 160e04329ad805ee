"""A stretch of addresses as a bar: each block where it lies, as long as it is, never too thin to be seen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bedplate.picture.marks import Anchor, Mark, Rect, Text
from bedplate.picture.measure import ASCENT, Face, width
from bedplate.plan.space import Span

THINNEST, APART, ROOM = 3.0, 1.0, 8.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One block in a bar, with what it is called."""

    span: Span
    role: str
    lines: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A segment and the place that it came to."""

    segment: Segment
    x: float
    width: float

    @property
    def is_named(self) -> bool:
        """Tell whether its words fit into it."""
        widest = max((width(words, face) for words, face in self.words), default=0)
        return widest + ROOM <= self.width

    @property
    def words(self) -> tuple[tuple[str, Face], ...]:
        """Its lines with their faces: a name, then an address."""
        return tuple(zip(self.segment.lines, (Face.STRONG, Face.CODE), strict=False))


def spread(segments: Iterable[Segment], whole: Span, room: float) -> tuple[Drawn, ...]:
    """Return where the segments come to, in the order of their addresses; thin ones push what touches them."""
    drawn: list[Drawn] = []
    reached = 0.0
    for segment in sorted(segments, key=lambda one: one.span.first):
        start = max((segment.span.first - whole.first) / whole.size * room, reached)
        end = max((segment.span.end - whole.first) / whole.size * room - APART, start + THINNEST)
        drawn.append(Drawn(segment, start, end - start))
        reached = end + APART
    return tuple(drawn)


def marks(drawn: Iterable[Drawn], height: float) -> Iterator[Mark]:
    """Yield the segments, and their words where they fit."""
    for one in drawn:
        yield Rect(one.x, 0, one.width, height, one.segment.role, min(2.0, one.width / 2), one.segment.title)
        if one.is_named:
            yield from _words(one, height)


def _words(one: Drawn, height: float) -> Iterator[Mark]:
    top = (height - sum(face.line for _, face in one.words)) / 2
    for words, face in one.words:
        yield Text(one.x + one.width / 2, top + face.value.size * ASCENT, words, face, Anchor.MIDDLE)
        top += face.line
