"""Cards in rows of equal columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from bedplate.picture.card import Card
from bedplate.picture.marks import Mark

MOST, GAP, WIDEST = 3, 16.0, 520.0


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide cards are and how many stand side by side."""

    count: int
    width: float
    left: float

    def x(self, number: int) -> float:
        """Return where a column begins, counted from 0."""
        return self.left + number * (self.width + GAP)


@dataclass(frozen=True, slots=True)
class Tier:
    """One row of cards from `y` down to `bottom`, where the highest ends."""

    columns: Columns
    cards: tuple[Card, ...]
    y: float
    bottom: float

    def marks(self) -> tuple[Mark, ...]:
        """Return its cards, all as high as the row is."""
        width, height = self.columns.width, self.bottom - self.y
        return tuple(
            mark
            for number, card in enumerate(self.cards)
            for mark in card.placed(width, height).at(self.columns.x(number), self.y)
        )


def placed(cards: Sequence[Card], columns: Columns, top: float, apart: float) -> tuple[Tier, ...]:
    """Return the cards in tiers of at most as many as there are columns."""
    tiers: list[Tier] = []
    for start in range(0, len(cards), columns.count):
        row = tuple(cards[start : start + columns.count])
        bottom = top + max(card.height(columns.width) for card in row)
        tiers.append(Tier(columns, row, top, bottom))
        top = bottom + apart
    return tuple(tiers)


def columns(natural: float, count: int, left: float, room: float) -> Columns:
    """Return the columns for that many cards, in as few rows as fit and no row much shorter than another."""
    fitting = max(1, min(MOST, count, int((room + GAP) // (natural + GAP))))
    even = ceil(count / ceil(count / fitting))
    width = min((room - GAP * (even - 1)) / even, max(WIDEST, natural))
    return Columns(even, width, left)
