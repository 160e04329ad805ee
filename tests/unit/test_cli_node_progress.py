"""What an operator sees while machines are applied to: on a terminal of its own, and in a log."""

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from bedplate.cli.node_progress import _Board, _take, carried_out
from bedplate.nodes.event import Event, Step
from bedplate.nodes.order import Order, Target
from bedplate.nodes.outcome import Outcome
from bedplate.plan.nodes import standing_nodes
from tests.support.declared import EXAMPLES, plan_of

NODES = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))
NOBODY = ("sh", "-c", "sleep 1; echo 'Connection refused' >&2; exit 255")
WAITS = "waits for another program that installs packages"


@contextmanager
def _terminal(monkeypatch: pytest.MonkeyPatch, rows: int) -> Iterator[list[bytes]]:
    """Let stderr be a terminal of so many rows; give what it is shown."""
    ours, theirs = pty.openpty()
    for name, value in (("COLUMNS", "100"), ("LINES", str(rows)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    shown: list[bytes] = []
    reading = Thread(target=_read, args=(ours, shown))
    reading.start()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield shown
        monkeypatch.undo()
    reading.join()
    os.close(ours)


def _read(ours: int, shown: list[bytes]) -> None:
    try:
        while part := os.read(ours, 4096):
            shown.append(part)
    except OSError:  # the other end is closed
        return


@pytest.mark.parametrize(("rows", "below"), [(40, ""), (5, f"and {len(NODES) - 2} more")], ids=["high", "low"])
def test_a_terminal_has_a_row_for_each_machine_from_the_start(
    rows: int, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is too low for all, the count stands above, and what is left out is told below."""
    order = Order(tuple(Target(node, NOBODY) for node in NODES), "ada", check=True)

    with _terminal(monkeypatch, rows) as shown:
        done = carried_out(order, ())

    text = b"".join(shown).decode()
    first = text[: text.index("with trouble")]
    assert f"0 of {len(NODES)} done" in first
    assert first.count("logging in") >= min(len(NODES), rows - 3)
    assert below in first
    assert all(each.trouble for each in done.outcomes)


def test_a_wait_is_one_line_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A package manager that is busy is asked once a second, and told once; a second wait is told anew."""
    board = _Board({"n": Outcome("n")})
    waits, begins = Event("n", Step.NOTE, words=WAITS), Event("n", Step.BEGINS, name="Packages")

    for event in (begins, waits, waits, waits, begins, waits):
        _take(board, event)

    assert capsys.readouterr().err.splitlines() == [f"n: {WAITS}"] * 2
