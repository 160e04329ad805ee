"""Progress of work on machines: a live table on a terminal, else a line on stderr for each event."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.cli.output import SafeStream, is_terminal, notify
from bedplate.nodes.apply import Engine, Event, Order, Outcome, Step, working
from bedplate.nodes.audit import Audit, Findings, audited
from bedplate.report.compliance import event_line as audit_event_line
from bedplate.report.nodes import event_line

DONE = "done"
STOPPING = "stopping after the current operation of each machine; press Ctrl-C again to disconnect now"


@dataclass(slots=True)
class Row:
    """The progress of one machine. `end` is empty during the work, then DONE or the kind of error."""

    doing: str
    figure: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The live table: one row for each machine."""

    rows: dict[str, Row]

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        """Yield the count and the rows. If the screen is too small, rows of finished machines are left out."""
        names, height = list(self.rows), console.size.height - 3
        shown = names if len(names) <= height else [name for name in names if not self.rows[name].end][:height]
        table = Table.grid(padding=(0, 3), expand=True)
        # On a narrow screen only the last column is cut.
        for ratio in (None, None, 1):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for name in shown:
            row = self.rows[name]
            table.add_row(name, row.figure, row.end or row.doing)
        yield Text(self._count())
        yield table
        if hidden := len(names) - len(shown):
            yield Text(f"and {hidden} more")

    def _count(self) -> str:
        ends = [row.end for row in self.rows.values() if row.end]
        done = ends.count(DONE)
        failed = len(ends) - done
        return f"{done} of {len(self.rows)} done" + (f", {failed} failed" if failed else "")


@contextmanager
def _shown(board: Board) -> Iterator[None]:
    """Show the board on a terminal while the block runs."""
    if not is_terminal():
        yield
        return
    # While a Live runs, rich replaces sys.stderr by a stream that leads back to the Live. This one does not.
    console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
    with Live(board, console=console, transient=True, refresh_per_second=4):
        yield


@dataclass
class Done:
    """The outcomes, in the order of the machines."""

    outcomes: tuple[Outcome, ...]
    interrupted: bool = False


class ApplyProgress:
    """The outcome of each machine so far, and the board that shows it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.outcomes = {name: Outcome(name) for name in names}
        self.board = Board({name: Row("logging in", "0") for name in names})

    def take(self, event: Event) -> None:
        """Enter an event. Without a terminal, print it, unless it repeats the one before."""
        outcome, row = self.outcomes[event.node], self.board.rows[event.node]
        outcome.take(event)
        previous, row.doing = row.doing, event.name or event.words or "reading facts"
        row.figure = f"{len(outcome.changed)}"
        row.end = DONE if outcome.is_done else str(outcome.trouble.kind) if outcome.trouble else ""
        is_repeated = event.step is Step.NOTE and event.words == previous
        line = event_line(event)
        if line and not is_repeated and not is_terminal():
            notify([line])


def apply_order(order: Order, unreachable: Sequence[Event]) -> Done:
    """Carry out the order and show its progress. `unreachable` are errors of machines that ssh cannot reach."""
    progress = ApplyProgress([*(event.node for event in unreachable), *(each.node.name for each in order.targets)])
    done = Done(tuple(progress.outcomes.values()))
    with _shown(progress.board):
        for event in unreachable:
            progress.take(event)
        if order.targets:
            with working(order) as engine:
                done.interrupted = _follow(engine, progress)
    return done


def _follow(engine: Engine, progress: ApplyProgress) -> bool:
    """Enter all events, and return whether Ctrl-C was pressed. The first one stops the engine, the second raises."""
    events, interrupted = engine.events(), False
    while True:
        try:
            for event in events:
                progress.take(event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            notify([STOPPING])
            engine.stop()
            events = engine.events()
        else:
            return interrupted


def audit_nodes(audit: Audit, names: Sequence[str]) -> tuple[Findings, ...]:
    """Check machines, show the progress, and return the findings in the order of the names."""
    board = Board({name: Row("waiting") for name in names})
    with _shown(board):
        return tuple(audited(audit, names, lambda event: take_audit_event(board.rows[event.node], event)))


def take_audit_event(row: Row, event: Event) -> None:
    """Enter an event of an audit. It runs in the thread that checks the machine."""
    row.doing = event.name or event.words
    checked = event.changed + event.unchanged
    if rules := checked + event.ahead:
        row.figure = f"{checked} of {rules}" + (f", {event.changed} violated" if event.changed else "")
    row.end = DONE if event.step is Step.DONE else str(event.kind or "")
    line = audit_event_line(event)
    if line and not is_terminal():
        notify([line])
