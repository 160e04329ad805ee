"""What a rehearsal shows while it works: live lines on a terminal, else one line whenever a stack begins a phase."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.cli.output import Steady, is_terminal, tell
from bedplate.nodes.apply import Engine, Event, Order, Outcome, working
from bedplate.nodes.apply import Step as ApplyStep
from bedplate.nodes.audit import Audit, Findings, audited
from bedplate.rehearsal.rehearse import Phase, Watch
from bedplate.rehearsal.state import Step
from bedplate.report.compliance import event_line as compliance_event_line
from bedplate.report.nodes import event_line


def terminal() -> Console:
    """Return the console on which live lines are shown."""
    # The stream itself: while lines are live, rich puts one of its own into its place, which leads back here.
    return Console(file=cast("IO[str]", Steady(sys.stderr)))


DOING = {
    Phase.CREATE: "creating",
    Phase.RECOVER: "creating what is missing",
    Phase.AGAIN: "running again",
    Phase.CHANGE: "changing",
    Phase.DESTROY: "destroying",
}


class Tally:
    """How many steps each stack has taken in the phase it is in; written from the stacks' threads."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[Phase, int]] = {}

    def count(self, stack: str, phase: Phase, step: Step) -> bool:
        """Count a step; tell whether it is the first of its phase."""
        known, count = self._counts.get(stack, (None, 0))
        self._counts[stack] = (phase, step.is_in_cloud + (count if known is phase else 0))
        return known is not phase

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 3))
        for stack, (phase, count) in list(self._counts.items()):
            table.add_row(stack, DOING[phase], f"{count:,}")
        return table


@contextmanager
def progress() -> Iterator[Watch]:
    """Give what a rehearsal tells its steps to; everything is shown on stderr."""
    tally = Tally()

    def on_terminal(stack: str, phase: Phase, step: Step) -> None:
        tally.count(stack, phase, step)

    def in_log(stack: str, phase: Phase, step: Step) -> None:
        if tally.count(stack, phase, step):
            tell([f"{stack}: {DOING[phase]}"])

    if is_terminal():
        with Live(tally, console=terminal(), transient=True):
            yield on_terminal
    else:
        yield in_log


DONE = "done"


@dataclass(slots=True)
class Row:
    """A machine: a figure, and what it is doing; `end` is empty while it is at work, then DONE or the trouble."""

    doing: str
    figure: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """What each machine is doing now."""

    rows: dict[str, Row]

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        """Yield the count and a row a machine; those that have ended give way where the screen is too low."""
        every, room = list(self.rows), console.size.height - 3
        shown = every if len(every) <= room else [name for name in every if not self.rows[name].end][:room]
        table = Table.grid(padding=(0, 3), expand=True)
        # What is being done gives way where a line is too short: names and figures stand whole.
        for ratio in (None, None, 1):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for name in shown:
            table.add_row(name, self.rows[name].figure, self.rows[name].end or self.rows[name].doing)
        more = len(every) - len(shown)
        yield Text(self._count())
        yield table
        if more:
            yield Text(f"and {more} more")

    def _count(self) -> str:
        ends = [row.end for row in self.rows.values() if row.end]
        done = ends.count(DONE)
        troubles = len(ends) - done
        return f"{done} of {len(self.rows)} done" + (f", {troubles} with trouble" if troubles else "")


@contextmanager
def shown(board: Board) -> Iterator[None]:
    """Show a board for as long as the work goes on, where there is a terminal."""
    if not is_terminal():
        yield
        return
    with Live(board, console=terminal(), transient=True, refresh_per_second=4):
        yield


STOPPING = "stopping when each node has finished what it is at; Ctrl-C once more cuts the connections"


@dataclass
class Done:
    """What became of every node, in the order in which they were named."""

    outcomes: tuple[Outcome, ...]
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Progress:
    """What has become of each node so far, and the board that shows it."""

    outcomes: dict[str, Outcome]
    board: Board

    def take(self, event: Event) -> bool:
        """Enter what has happened; tell whether it is news."""
        outcome, row = self.outcomes[event.node], self.board.rows[event.node]
        outcome.take(event)
        before, row.doing = row.doing, event.name or event.words or "looking"
        row.figure = f"{len(outcome.changed)}"
        row.end = DONE if outcome.is_done else str(outcome.trouble.kind) if outcome.trouble else ""
        return event.step is not ApplyStep.NOTE or event.words != before


def carried_out(order: Order, missing: Sequence[Event]) -> Done:
    """Carry out an order and show it; `missing` are the machines to which there is no way."""
    progress = _begun([*(event.node for event in missing), *(each.node.name for each in order.targets)])
    done = Done(tuple(progress.outcomes.values()))
    with shown(progress.board):
        for event in missing:
            _take(progress, event)
        if order.targets:
            with working(order) as engine:
                done.interrupted = _follow(engine, progress)
    return done


def _begun(names: Sequence[str]) -> _Progress:
    return _Progress({name: Outcome(name) for name in names}, Board({name: Row("logging in", "0") for name in names}))


def _follow(engine: Engine, progress: _Progress) -> bool:
    """Take what happens to its end; a first Ctrl-C stops, a second one leaves. Tell whether there was any."""
    events, interrupted = engine.events(), False
    while True:
        try:
            for event in events:
                _take(progress, event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            tell([STOPPING])
            engine.stop()
            events = engine.events()
        else:
            return interrupted


def _take(progress: _Progress, event: Event) -> None:
    is_news, line = progress.take(event), event_line(event)
    if line and is_news and not is_terminal():
        tell([line])


def looked_at(audit: Audit, nodes: Sequence[str]) -> tuple[Findings, ...]:
    """Audit machines and show it; return what is found on each, in their order."""
    board = Board({name: Row("waits for its turn") for name in nodes})
    with shown(board):
        return tuple(audited(audit, nodes, lambda event: _node_audit_progress_take(board.rows[event.node], event)))


def _node_audit_progress_take(row: Row, event: Event) -> None:
    """Enter what has happened, told by the thread that looks at the machine."""
    row.doing = event.name or event.words
    done = event.changed + event.unchanged
    if rules := done + event.ahead:
        row.figure = f"{done} of {rules}" + (f", {event.changed} violated" if event.changed else "")
    row.end = DONE if event.step is ApplyStep.DONE else str(event.kind or "")
    line = compliance_event_line(event)
    if line and not is_terminal():
        tell([line])
