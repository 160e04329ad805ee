"""The day on which a file is checked."""

from datetime import UTC, date, datetime, timedelta

import pytest

from bedplate.errors import InputError
from bedplate.load.clock import EPOCH, today


def test_the_day_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds that must come out the same say as of when; a day starts at midnight in UTC."""
    monkeypatch.setenv(EPOCH, "1795219199")
    before = today()
    monkeypatch.setenv(EPOCH, "1795219200")

    assert (before, today()) == (date(2026, 11, 20), date(2026, 11, 21))


def test_without_a_word_it_is_the_day_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once between two readings of the same clock."""
    monkeypatch.delenv(EPOCH)
    now = datetime.now(UTC)

    assert now.date() <= today() <= (now + timedelta(minutes=1)).date()


@pytest.mark.parametrize("told", ["", "yesterday", "9" * 30])
def test_what_is_no_moment_is_refused(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """An operator's slip is no traceback."""
    monkeypatch.setenv(EPOCH, told)

    with pytest.raises(InputError, match=EPOCH):
        today()
