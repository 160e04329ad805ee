"""What nothing real is made of, for the lock does not have it."""

from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.lock.unrecorded import refuse_names


@pytest.mark.parametrize(
    ("count", "told"), [(1, ": one0"), (8, "one6, one7"), (300, "one7, and 292 more")], ids=["one", "eight", "many"]
)
def test_the_first_that_are_missing_are_named(count: int, told: str) -> None:
    """All of a fleet is missing where it has no lock yet: a line of hundreds says less than its beginning."""
    with pytest.raises(InputError) as refused:
        refuse_names((f"one{number}" for number in range(count)), Path("fleet.yaml"))

    assert refused.value.what.endswith(told)


def test_what_to_run_is_told_for_the_file_that_was_named() -> None:
    """It is copied from the screen as it stands, wherever the file lies."""
    with pytest.raises(InputError, match="one") as refused:
        refuse_names(("one",), Path("our lab/fleet.yaml"))

    assert "`bedplate plan --write 'our lab/fleet.yaml'`" in refused.value.fix


def test_nothing_is_refused_where_nothing_is_missing() -> None:
    """The usual case."""
    refuse_names((), Path("fleet.yaml"))
