"""Rows of words and signs in columns: measured first, placed once the width is known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from typing import Protocol

from bedplate.picture.svg import (
    ASCENT,
    SIGN,
    Anchor,
    Face,
    Icon,
    Line,
    Mark,
    Part,
    Rect,
    Sign,
    Text,
    fitted,
    stacked,
    width,
)
from bedplate.plan.space import Span

ROW, COLUMN_GAP, TOKEN_GAP = 20.0, 10.0, 5.0
WIDEST_WORD = 250.0  # longer ones are cut; a pointer over them tells them whole


@dataclass(frozen=True, slots=True)
class Word:
    """Words in a cell."""

    words: str
    face: Face = Face.BODY

    @property
    def width(self) -> float:
        """The room that they take, cut where they are too long."""
        return min(width(self.words, self.face), WIDEST_WORD)

    def mark(self, x: float, middle: float, anchor: Anchor = Anchor.START) -> Mark:
        """Return the words from x on, or up to x, around a line's middle."""
        cut = fitted(self.words, self.face, WIDEST_WORD)
        title = "" if cut == self.words else self.words
        return Text(x, middle + self.face.value.size * 0.35, cut, self.face, anchor, title)


@dataclass(frozen=True, slots=True)
class Shape:
    """A sign in a cell."""

    sign: Sign
    role: str = "sign"
    title: str = ""
    width: float = SIGN

    def mark(self, x: float, middle: float, anchor: Anchor = Anchor.START) -> Mark:
        """Return the sign from x on, or up to x, around a line's middle."""
        return Icon(x + SIGN * (0.5 - anchor.value), middle, self.sign, self.role, self.title)


Token = Word | Shape
Cell = tuple[Token, ...]


def cell_width(cell: Cell) -> float:
    """Return the room that a cell takes."""
    return sum(token.width for token in cell) + TOKEN_GAP * max(len(cell) - 1, 0)


def cell_marks(cell: Cell, x: float, middle: float, anchor: Anchor = Anchor.START) -> tuple[Mark, ...]:
    """Return a cell's marks from x on, or up to x: words that come out narrower still end there."""
    is_ended = anchor is Anchor.END
    marks: list[Mark] = []
    for token in reversed(cell) if is_ended else cell:
        marks.append(token.mark(x, middle, anchor))
        x += (token.width + TOKEN_GAP) * (-1 if is_ended else 1)
    return tuple(marks)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells: the first column begins at the left, the last ends at the right."""

    rows: tuple[tuple[Cell, ...], ...]

    @property
    def natural(self) -> float:
        """The least width that it needs."""
        columns = self._columns()
        return sum(columns) + COLUMN_GAP * max(len(columns) - 1, 0)

    def placed(self, room: float) -> Part:
        """Return its marks in that width; what is over goes between the columns."""
        columns = self._columns()
        marks = (mark for number, row in enumerate(self.rows) for mark in _row(row, columns, number, room))
        return Part(room, ROW * len(self.rows), tuple(marks))

    def _columns(self) -> tuple[float, ...]:
        columns = zip_longest(*self.rows, fillvalue=())
        return tuple(max(cell_width(cell) for cell in column) for column in columns)


def _row(row: Sequence[Cell], columns: Sequence[float], number: int, room: float) -> tuple[Mark, ...]:
    middle = ROW * (number + 0.5)
    spare = (room - sum(columns)) / max(len(columns) - 1, 1)
    marks: list[Mark] = []
    for index, cell in enumerate(row):
        x = sum(columns[:index]) + spare * index
        is_last = index and index == len(columns) - 1
        marks += cell_marks(cell, room, middle, Anchor.END) if is_last else cell_marks(cell, x, middle)
    return tuple(marks)


BETWEEN = 18.0


def flowing(cells: Sequence[Cell], room: float) -> Part:
    """Return the cells in lines that are no wider than the room."""
    marks: list[Mark] = []
    x = line = 0.0
    for cell in cells:
        wide = cell_width(cell)
        if x and x + wide > room:
            x, line = 0.0, line + 1
        marks += cell_marks(cell, x, ROW * (line + 0.5))
        x += wide + BETWEEN
    return Part(room, ROW * (line + 1) if marks else 0, tuple(marks))


def in_columns(cells: Sequence[Cell], room: float, least: float = 0) -> Part:
    """Return the cells in lines whose columns stand below one another, none narrower than `least`."""
    step = max((*(cell_width(cell) for cell in cells), least)) + BETWEEN
    fitting = max(1, int((room + BETWEEN) // step))
    marks: list[Mark] = []
    for number, cell in enumerate(cells):
        marks += cell_marks(cell, number % fitting * step, ROW * (number // fitting + 0.5))
    return Part(room, ROW * ceil(len(cells) / fitting), tuple(marks))


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
        """Return whether its words fit into it."""
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


PADDING, CARD_GAP, BAR = 14.0, 10.0, 22.0


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
        return stacked((piece.placed(room - 2 * PADDING) for piece in self.pieces), CARD_GAP)

    def height(self, room: float) -> float:
        """Return how high it is at that width."""
        return self.contents(room).height + 2 * PADDING - CARD_GAP / 2

    def placed(self, room: float, height: float) -> Part:
        """Return the card in a frame of that size."""
        frame = Rect(0, 0, room, height, "card", 8)
        return Part(room, height, (frame, *self.contents(room).at(PADDING, PADDING - CARD_GAP / 2)))


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
