"""What is printed when a command ends early."""

from bedplate.errors import InputError
from bedplate.report.errors import defect_lines, error_lines


def test_an_error_is_three_lines() -> None:
    """What is wrong, where it is, and what to change."""
    error = InputError("10.0.0.0/16 overlaps", where="fleet.yaml", fix="choose another block")

    assert error_lines(error) == (
        "error: 10.0.0.0/16 overlaps",
        "  in   fleet.yaml",
        "  fix  choose another block",
    )


def test_what_an_error_does_not_know_is_left_out() -> None:
    """An empty line says nothing."""
    assert error_lines(InputError("the disk is full")) == ("error: the disk is full",)


def test_a_defect_says_how_to_see_more() -> None:
    """Whoever reports a defect needs its traceback, which nobody else wants to read."""
    what, fix = defect_lines(KeyError("zones"))

    assert what == "error: a defect in bedplate: KeyError: 'zones'"
    assert "BEDPLATE_TRACEBACK=1" in fix
