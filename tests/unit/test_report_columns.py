"""How the lines of a report stand under one another."""

import pytest

from bedplate.report.columns import aligned, counted


def test_cells_begin_under_one_another() -> None:
    """A column is as wide as its widest cell."""
    assert aligned([("a", "b"), ("long", "c")]) == ("a      b", "long   c")


def test_figures_end_under_one_another() -> None:
    """Numbers are compared by their last digit."""
    assert aligned([("a", "9"), ("b", "1,024")], right=(1,)) == ("a       9", "b   1,024")


def test_the_last_cell_of_a_row_widens_nothing() -> None:
    """A long remark on one row must not push the cells of the others out of the terminal."""
    assert aligned([("a", "a long remark"), ("b", "c", "d")]) == ("a   a long remark", "b   c   d")


def test_lines_have_no_blanks_at_their_end() -> None:
    """They would show in a diff of two runs."""
    assert aligned([("a", ""), ("b", "c", "")]) == ("a", "b   c")


@pytest.mark.parametrize(("count", "told"), [(0, "0 people"), (1, "1 person"), (2, "2 people"), (1024, "1,024 people")])
def test_a_count_has_its_noun(count: int, told: str) -> None:
    """Neither `1 errors` nor `error(s)`."""
    assert counted(count, "person", "people") == told
