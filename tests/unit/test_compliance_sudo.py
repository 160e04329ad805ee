"""What keeps sudo from telling of somebody, by what its own parser says of its files."""

from typing import Any

import pytest

from tests.compliance.sudo import WANTED, hidden

Entry = dict[str, Any]
OURS: Entry = {"Options": [{name: value} for name, value in WANTED.items()]}


def _of(option: Entry, **binding: str) -> Entry:
    bound = {"Binding": [binding]} if binding else {}
    return {**bound, "Options": [option]}


@pytest.mark.parametrize(
    "others",
    [
        (),
        (_of({"env_reset": True}), _of({"log_year": True})),
        (_of({"logfile": "/var/log/sudo.log"}, username="ada"),),
    ],
    ids=["ours", "of no matter", "said again"],
)
def test_what_is_told_of_everybody_is_let_pass(others: tuple[Entry, ...]) -> None:
    """What another file sets for all before ours counts no more."""
    assert hidden({"Defaults": [_of({"logfile": False}), *others, OURS]}) == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((), (_of({"logfile": "/dev/null"}),), "logfile is /dev/null"),
        ((), (_of({"syslog": False}),), "syslog is False"),
        ((), (_of({"syslog_goodpri": "none"}),), "syslog_goodpri is none"),
        ((_of({"log_allowed": False}, username="ada"),), (), "log_allowed is False for ada"),
        ((_of({"syslog": False}, command="/bin/bash"),), (), "syslog is False for /bin/bash"),
        ((_of({"use_pty": False}, usergroup="vision"),), (), "use_pty is False for vision"),
    ],
    ids=["elsewhere", "not in the journal", "below notice", "person", "command", "group"],
)
def test_who_is_hidden_is_found(before: tuple[Entry, ...], after: tuple[Entry, ...], found: str) -> None:
    """By what is said last for all, and for one by whatever is said of them, also before ours."""
    assert hidden({"Defaults": [*before, OURS, *after]}) == [found]


def test_sudo_s_own_defaults_are_not_taken_for_ours() -> None:
    """A node that nobody has hardened writes no log."""
    assert "logfile is None" in hidden({})
