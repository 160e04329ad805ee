"""Cells one after another, going on in the next line where the room ends."""

from collections.abc import Sequence
from math import ceil

from bedplate.picture.marks import Mark, Part
from bedplate.picture.table import ROW, Cell, cell_marks, cell_width

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
