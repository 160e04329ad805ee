"""Layout: tables, flowing cells, bars of address blocks, and cards in columns.

Parts are measured first and placed once their width is known.
"""

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
WIDEST_WORD = 250.0  # longer words are cut; the tooltip shows the full text


@dataclass(frozen=True, slots=True)
class Word:
    """Text in a cell."""

    words: str
    face: Face = Face.BODY

    @property
    def width(self) -> float:
        """The width of the text, after it is cut."""
        return min(width(self.words, self.face), WIDEST_WORD)

    def mark(self, x: float, middle: float, anchor: Anchor = Anchor.START) -> Mark:
        """Return the text, starting or ending at x, vertically centred."""
        cut = fitted(self.words, self.face, WIDEST_WORD)
        title = "" if cut == self.words else self.words
        return Text(x, middle + self.face.value.size * 0.35, cut, self.face, anchor, title)


@dataclass(frozen=True, slots=True)
class Shape:
    """An icon in a cell."""

    sign: Sign
    role: str = "sign"
    title: str = ""
    width: float = SIGN

    def mark(self, x: float, middle: float, anchor: Anchor = Anchor.START) -> Mark:
        """Return the icon, starting or ending at x, vertically centred."""
        return Icon(x + SIGN * (0.5 - anchor.value), middle, self.sign, self.role, self.title)


Token = Word | Shape
Cell = tuple[Token, ...]


def cell_width(cell: Cell) -> float:
    """Return the width of a cell."""
    return sum(token.width for token in cell) + TOKEN_GAP * max(len(cell) - 1, 0)


def cell_marks(cell: Cell, x: float, middle: float, anchor: Anchor = Anchor.START) -> tuple[Mark, ...]:
    """Return a cell's marks, starting or ending at x; with a narrower font, text still ends there."""
    is_ended = anchor is Anchor.END
    marks: list[Mark] = []
    for token in reversed(cell) if is_ended else cell:
        marks.append(token.mark(x, middle, anchor))
        x += (token.width + TOKEN_GAP) * (-1 if is_ended else 1)
    return tuple(marks)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; the first column is left-aligned, the last right-aligned."""

    rows: tuple[tuple[Cell, ...], ...]

    @property
    def natural(self) -> float:
        """The minimum width."""
        columns = self._columns()
        return sum(columns) + COLUMN_GAP * max(len(columns) - 1, 0)

    def placed(self, room: float) -> Part:
        """Return the marks in that width; spare space is distributed between the columns."""
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
    """Return the cells in lines no wider than `room`."""
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
    """Return the cells in aligned columns, none narrower than `least`."""
    step = max((*(cell_width(cell) for cell in cells), least)) + BETWEEN
    fitting = max(1, int((room + BETWEEN) // step))
    marks: list[Mark] = []
    for number, cell in enumerate(cells):
        marks += cell_marks(cell, number % fitting * step, ROW * (number // fitting + 0.5))
    return Part(room, ROW * ceil(len(cells) / fitting), tuple(marks))


THINNEST, SEGMENT_GAP, LABEL_PADDING = 3.0, 1.0, 8.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One block in a bar, with its label lines."""

    span: Span
    role: str
    lines: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """A segment with its position and width."""

    segment: Segment
    x: float
    width: float

    @property
    def is_named(self) -> bool:
        """Whether the label fits."""
        widest = max((width(words, face) for words, face in self.words), default=0)
        return widest + LABEL_PADDING <= self.width

    @property
    def words(self) -> tuple[tuple[str, Face], ...]:
        """The label lines with their faces: a name, then an address."""
        return tuple(zip(self.segment.lines, (Face.STRONG, Face.CODE), strict=False))


def spread(segments: Iterable[Segment], whole: Span, room: float) -> tuple[PlacedSegment, ...]:
    """Return the segments placed to scale, in order of address; one at minimum width shifts those after it."""
    placed_segments: list[PlacedSegment] = []
    reached = 0.0
    for segment in sorted(segments, key=lambda segment: segment.span.first):
        start = max((segment.span.first - whole.first) / whole.size * room, reached)
        end = max((segment.span.end - whole.first) / whole.size * room - SEGMENT_GAP, start + THINNEST)
        placed_segments.append(PlacedSegment(segment, start, end - start))
        reached = end + SEGMENT_GAP
    return tuple(placed_segments)


def segment_marks(segments: Iterable[PlacedSegment], height: float) -> Iterator[Mark]:
    """Yield the segments, with their labels where they fit."""
    for item in segments:
        segment, radius = item.segment, min(2.0, item.width / 2)
        yield Rect(item.x, 0, item.width, height, segment.role, radius, segment.title)
        if item.is_named:
            yield from _label(item, height)


def _label(item: PlacedSegment, height: float) -> Iterator[Mark]:
    top = (height - sum(face.line for _, face in item.words)) / 2
    for words, face in item.words:
        yield Text(item.x + item.width / 2, top + face.value.size * ASCENT, words, face, Anchor.MIDDLE)
        top += face.line


PADDING, CARD_GAP, BAR = 14.0, 10.0, 22.0


class Piece(Protocol):
    """A part of a card: it reports its minimum width, and is placed at a given width."""

    @property
    def natural(self) -> float:
        """The minimum width."""

    def placed(self, room: float) -> Part:
        """Return the piece at that width."""


@dataclass(frozen=True, slots=True)
class Separator:
    """A thin line between pieces."""

    natural: float = 0.0

    def placed(self, room: float) -> Part:
        """Return the line across the card."""
        return Part(room, 1, (Line(0, 0.5, room, 0, "rule"),))


@dataclass(frozen=True, slots=True)
class AddressBar:
    """A range of addresses and the blocks in it, to scale."""

    whole: Span
    segments: tuple[Segment, ...]
    natural: float = 0.0

    def placed(self, room: float) -> Part:
        """Return the bar across the card; free addresses are empty."""
        frame = Rect(0, 0, room, BAR, "free", 2)
        return Part(room, BAR, (frame, *segment_marks(spread(self.segments, self.whole, room), BAR)))


@dataclass(frozen=True, slots=True)
class Card:
    """A region or a site, with its contents."""

    pieces: tuple[Piece, ...]

    @property
    def natural(self) -> float:
        """The minimum width."""
        return max(piece.natural for piece in self.pieces) + 2 * PADDING

    def contents(self, room: float) -> Part:
        """Return the pieces, without a frame."""
        return stacked((piece.placed(room - 2 * PADDING) for piece in self.pieces), CARD_GAP)

    def height(self, room: float) -> float:
        """Return the height at that width."""
        return self.contents(room).height + 2 * PADDING - CARD_GAP / 2

    def placed(self, room: float, height: float) -> Part:
        """Return the card in a frame of that size."""
        frame = Rect(0, 0, room, height, "card", 8)
        return Part(room, height, (frame, *self.contents(room).at(PADDING, PADDING - CARD_GAP / 2)))


MOST_COLUMNS, COLUMN_SPACE, WIDEST_CARD = 3, 16.0, 520.0


@dataclass(frozen=True, slots=True)
class Columns:
    """The width of cards and the number of columns."""

    count: int
    width: float
    left: float

    def x(self, number: int) -> float:
        """Return the left edge of a column, counted from 0."""
        return self.left + number * (self.width + COLUMN_SPACE)


@dataclass(frozen=True, slots=True)
class Tier:
    """One row of cards from `y` down to `bottom`, the end of the highest card."""

    columns: Columns
    cards: tuple[Card, ...]
    y: float
    bottom: float

    def marks(self) -> tuple[Mark, ...]:
        """Return the cards, all at the height of the row."""
        width, height = self.columns.width, self.bottom - self.y
        return tuple(
            mark
            for number, card in enumerate(self.cards)
            for mark in card.placed(width, height).at(self.columns.x(number), self.y)
        )


def placed(cards: Sequence[Card], columns: Columns, top: float, apart: float) -> tuple[Tier, ...]:
    """Return the cards in rows of at most the number of columns."""
    tiers: list[Tier] = []
    for start in range(0, len(cards), columns.count):
        row = tuple(cards[start : start + columns.count])
        bottom = top + max(card.height(columns.width) for card in row)
        tiers.append(Tier(columns, row, top, bottom))
        top = bottom + apart
    return tuple(tiers)


def columns(natural: float, count: int, left: float, room: float) -> Columns:
    """Return the columns for a number of cards: as few rows as possible, of similar length."""
    fitting = max(1, min(MOST_COLUMNS, count, int((room + COLUMN_SPACE) // (natural + COLUMN_SPACE))))
    even = ceil(count / ceil(count / fitting))
    width = min((room - COLUMN_SPACE * (even - 1)) / even, max(WIDEST_CARD, natural))
    return Columns(even, width, left)
