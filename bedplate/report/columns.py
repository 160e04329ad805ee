"""Tables of text with aligned columns, and counts with a noun."""

from collections.abc import Iterable, Sequence

WIDTH = 100


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


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 error`, `2 errors`, `1,024 buckets`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
