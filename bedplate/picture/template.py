"""Rendering of templates, and the cells of their tables.

Templates hold the layout. No text is measured: every row has one line of a fixed height, and CSS cuts what is too long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from bedplate.templates import templates

ROW = 20  # the height of a row, in pixels

_TEMPLATES = templates(Path(__file__).parent / "templates", is_html=True)


@dataclass(frozen=True, slots=True)
class Word:
    """A text in a cell with its CSS class, after an icon or a swatch; `title` is its tooltip."""

    text: object
    face: str = ""
    sign: str = ""
    title: str = ""


Cell = tuple[Word, ...]
Row = tuple[Cell, ...]


def height_of(cells: Sequence[object], columns: int = 1) -> int:
    """Return the height of cells in that many columns."""
    return ROW * ceil(len(cells) / columns)


def render(template: str, **values: object) -> str:
    """Return the SVG document of a template; the same values give the same bytes."""
    return _TEMPLATES.get_template(template).render(values)
