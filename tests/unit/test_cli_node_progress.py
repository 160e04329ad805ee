"""What an operator sees while machines are applied to or audited: on a terminal of its own, and in a log."""

import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from threading import Thread

import pytest
from rich.console import Console

from bedplate.cli.node_audit_progress import looked_at
from bedplate.cli.node_board import Board, Row
from bedplate.cli.node_progress import _begun, _take, carried_out
from bedplate.nodes.audit import Audit
from bedplate.nodes.event import Event, Step
from bedplate.nodes.order import Order, Target
from bedplate.nodes.verdict import Outcome as Verdict
from bedplate.plan.nodes import standing_nodes
from tests.support.declared import EXAMPLES, plan_of

LAB = EXAMPLES / "lab.yaml"
NODES = standing_nodes(plan_of(LAB))
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


def test_what_is_being_done_gives_way_to_who_does_it() -> None:
    """A long name of a rule is cut off at the edge of the terminal, and neither a machine's name nor its figure."""
    text = StringIO()
    screen = Console(width=60, file=text)

    screen.print(Board({"nas.cellar": Row("baseline " + "a-long-name-" * 9, "10 of 46, 9 violated")}))

    row = text.getvalue().splitlines()[1]
    assert row.startswith("nas.cellar   10 of 46, 9 violated   baseline a-long-")
    assert len(row) == 60


def test_a_wait_is_one_line_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A package manager that is busy is asked once a second, and told once; a second wait is told anew."""
    progress = _begun(["n"])
    waits, begins = Event("n", Step.NOTE, words=WAITS), Event("n", Step.BEGINS, name="Packages")

    for event in (begins, waits, waits, waits, begins, waits):
        _take(progress, event)

    assert capsys.readouterr().err.splitlines() == [f"n: {WAITS}"] * 2


def test_a_terminal_shows_how_far_an_audit_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row from the start; at its end all rules are done, and nothing of it is left to read."""
    with _terminal(monkeypatch, 40) as shown:
        (found,) = looked_at(Audit(LAB, only=frozenset({"monitoring"})), ["nas.cellar"])

    text = b"".join(shown).decode()
    rules, violated = len(found.verdicts), len(found.of(Verdict.VIOLATED))
    assert text.index("0 of 1 done") < text.index("1 of 1 done")
    assert re.search(rf"nas.cellar +{rules} of {rules}, {violated} violated +done", text)


def test_a_log_of_an_audit_has_a_line_for_each_machine_that_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """None for each rule, and none on standard output."""
    (found,) = looked_at(Audit(LAB, only=frozenset({"monitoring"})), ["nas.cellar"])

    told = capsys.readouterr()
    violated = len(found.of(Verdict.VIOLATED))
    assert told.err == f"nas.cellar: {len(found.verdicts)} rules, {violated} violated, {found.seconds:.1f} s\n"
    assert told.out == ""


def test_each_rule_is_shown_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its role and name, with how many are done of how many."""
    told: list[Event] = []
    monkeypatch.setattr("bedplate.cli.node_audit_progress._take", lambda _, event: told.append(event))

    (found,) = looked_at(Audit(LAB, only=frozenset({"monitoring"})), ["nas.cellar"])

    rules = len(found.verdicts)
    begun = [event for event in told if event.step is Step.BEGINS]
    assert [event.name for event in begun] == [f"{each.role} {each.rule}" for each in found.verdicts]
    assert [event.changed + event.unchanged for event in begun] == list(range(rules))
    assert {event.changed + event.unchanged + event.ahead for event in begun} == {rules}
