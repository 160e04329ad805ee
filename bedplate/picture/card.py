"""A framed card: pieces below one another, each as wide as the card lets it be."""

from dataclasses import dataclass
from typing import Protocol

from bedplate.picture.bar import Segment, marks, spread
from bedplate.picture.marks import Line, Part, Rect, stacked
from bedplate.plan.space import Span

PADDING, GAP, BAR = 14.0, 10.0, 22.0


class Piece(Protocol):
    """What a card holds: it says how wide it must be, and is drawn once it knows how wide it may be."""

    @property
    def natural(self) -> float:
        """The least width that it needs."""

    def placed(self, room: float) -> Part:
        """Return it at that width."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A thin line between pieces."""

    natural: float = 0.0

    def placed(self, room: float) -> Part:
        """Return the line across the card."""
        return Part(room, 1, (Line(0, 0.5, room, 0, "rule"),))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of addresses and the blocks in it, to scale."""

    whole: Span
    segments: tuple[Segment, ...]
    natural: float = 0.0

    def placed(self, room: float) -> Part:
        """Return the bar across the card, with what is free left empty."""
        frame = Rect(0, 0, room, BAR, "free", 2)
        return Part(room, BAR, (frame, *marks(spread(self.segments, self.whole, room), BAR)))


@dataclass(frozen=True, slots=True)
class Card:
    """A place of the fleet and what stands in it."""

    pieces: tuple[Piece, ...]

    @property
    def natural(self) -> float:
        """The least width that it needs."""
        return max(piece.natural for piece in self.pieces) + 2 * PADDING

    def contents(self, room: float) -> Part:
        """Return the pieces, without a frame."""
        return stacked((piece.placed(room - 2 * PADDING) for piece in self.pieces), GAP)

    def height(self, room: float) -> float:
        """Return how high it is at that width."""
        return self.contents(room).height + 2 * PADDING - GAP / 2

    def placed(self, room: float, height: float) -> Part:
        """Return the card in a frame of that size."""
        frame = Rect(0, 0, room, height, "card", 8)
        return Part(room, height, (frame, *self.contents(room).at(PADDING, PADDING - GAP / 2)))
