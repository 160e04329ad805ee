"""Tables of text with aligned columns, wrapped texts, counts with a noun, ages, and differences of two tables."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from textwrap import wrap

WIDTH = 100
INDENT = "    "


def aligned(rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), gap: int = 3) -> tuple[str, ...]:
    """Return one line for each row. The columns in `right` are right-aligned, all others left-aligned.

    Rows may differ in length. The last cell of a row is not padded, so it does not widen its column.
    """
    table = [tuple(row) for row in rows]
    widths = _widths(table, right)
    return tuple(_line(row, widths, right, " " * gap) for row in table)


def _widths(table: Sequence[Sequence[str]], right: Sequence[int]) -> dict[int, int]:
    widths: dict[int, int] = {}
    for row in table:
        for column, cell in enumerate(row):
            if column in right or column < len(row) - 1:
                widths[column] = max(widths.get(column, 0), len(cell))
    return widths


def _line(row: Sequence[str], widths: dict[int, int], right: Sequence[int], gap: str) -> str:
    cells = (
        cell.rjust(widths[column]) if column in right else cell.ljust(widths.get(column, 0))
        for column, cell in enumerate(row)
    )
    return gap.join(cells).rstrip()


def wrapped(text: str, lead: str = INDENT) -> list[str]:
    """Return a text after its lead, as lines that fit a terminal; further lines are indented to the same column.

    Names and commands are not broken, not even at hyphens.
    """
    below = " " * len(lead)
    return wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def changed_rows(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return a row for each name whose values differ, with both values; `-` is no value."""
    rows = ((name, before.get(name, "-"), after.get(name, "-")) for name in sorted({**before, **after}))
    return [row for row in rows if row[1] != row[2]]


# Below these, an age is in minutes, or in hours.
_MINUTES, _HOURS = 120, 48


def age_since(then: datetime, now: datetime) -> str:
    """Return a time span as `5m`, `3h` or `12d`."""
    minutes = max(0, int((now - then).total_seconds() / 60))
    hours = minutes // 60
    return f"{minutes}m" if minutes < _MINUTES else f"{hours}h" if hours < _HOURS else f"{hours // 24}d"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 error`, `2 errors`, `1,024 buckets`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
