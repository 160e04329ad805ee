"""One simulation at a time."""

import pytest

from bedplate.rehearsal.simulation import running

ACCOUNT = "111122223333"


def test_a_thread_does_not_wait_for_itself() -> None:
    """A second simulation beside one's own is a mistake that is told, and no silence without an end."""
    with running(ACCOUNT), pytest.raises(RuntimeError, match="would wait for itself"), running(ACCOUNT):
        pass


def test_the_next_begins_when_the_one_before_has_ended() -> None:
    """Also where that one ended by an error."""
    with pytest.raises(KeyError), running(ACCOUNT):
        raise KeyError

    with running(ACCOUNT) as simulation:
        assert simulation.account == ACCOUNT
