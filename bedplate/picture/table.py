"""Rows of words and signs in columns: measured first, placed once the width is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from bedplate.picture.marks import Anchor, Icon, Mark, Part, Text
from bedplate.picture.measure import Face, fitted, width
from bedplate.picture.signs import SIGN, Sign

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
