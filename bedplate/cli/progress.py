"""Progress on stderr: a live table on a terminal, else a line for each event; and changes in red on stdout."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.cli.output import SafeStream, is_terminal, notify
from bedplate.deploy.progress import Operation, Progress, Status
from bedplate.deploy.run import Deployment, Watch
from bedplate.nodes.apply import Event, NodeResult, Step
from bedplate.operate import Views
from bedplate.report.compliance import event_line as audit_event_line
from bedplate.report.deploy import DESTRUCTIVE, LOG_WIDTH, progress_lines
from bedplate.report.nodes import event_line

_STOPPING = "stopping: operations that have begun are completed"
_DONE = "done"


def _console() -> Console:
    # While a Live runs, rich replaces sys.stderr by a stream that leads back to the Live. This one does not.
    return Console(file=cast("IO[str]", SafeStream(sys.stderr)))


@dataclass(slots=True)
class Row:
    """The progress of one machine. `end` is empty during the work, then "done" or the kind of error."""

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
        done = ends.count(_DONE)
        failed = len(ends) - done
        return f"{done} of {len(self.rows)} done" + (f", {failed} failed" if failed else "")


@contextmanager
def board_of(names: Iterable[str], doing: str, figure: str = "") -> Iterator[Board]:
    """Yield a board with these machines, which is shown on a terminal while the block runs."""
    board = Board({name: Row(doing, figure) for name in names})
    if not is_terminal():
        yield board
        return
    with Live(board, console=_console(), transient=True, refresh_per_second=4):
        yield board


def take_event(row: Row, event: Event, result: NodeResult) -> None:
    """Enter an event of an apply. Without a terminal, print it, unless it repeats the one before."""
    previous, row.doing = row.doing, event.name or event.words or "reading facts"
    row.figure = f"{len(result.changed)}"
    row.end = _DONE if result.is_done else str(result.error.kind) if result.error else ""
    _log(None if event.step is Step.NOTE and event.words == previous else event_line(event))


def take_audit_event(row: Row, event: Event) -> None:
    """Enter an event of an audit. It runs in the thread that checks the machine."""
    row.doing = event.name or event.words
    checked = event.changed + event.unchanged
    if rules := checked + event.ahead:
        row.figure = f"{checked} of {rules}" + (f", {event.changed} failed" if event.changed else "")
    row.end = _DONE if event.step is Step.DONE else str(event.kind or "")
    _log(audit_event_line(event))


class _Tally:
    """What is done in each stack and its number of steps so far. The stacks' threads write to it."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[str, int]] = {}

    def count(self, stack: str, doing: str, *, is_in_cloud: bool) -> bool:
        """Count a step. Return whether it is the first of its phase."""
        current, count = self._counts.get(stack, (None, 0))
        self._counts[stack] = (doing, is_in_cloud + (count if current == doing else 0))
        return current != doing

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 3))
        for stack, (doing, count) in list(self._counts.items()):
            table.add_row(stack, doing, f"{count:,}")
        return table


def _log(line: str | None) -> None:
    if line and not is_terminal():
        notify([line])


def show_red(lines: Iterable[str]) -> None:
    """Print lines on the terminal, with replacements and deletions in red."""
    console = Console(file=cast("IO[str]", SafeStream(sys.stdout)))
    for line in lines:
        text = Text(line)
        text.highlight_regex(DESTRUCTIVE, "red")
        console.print(text, soft_wrap=True)


class Tables(Views):
    """What a terminal shows of the progress of workflows."""

    @contextmanager
    def stacks(self, deployment: Deployment) -> Iterator[Watch]:
        """Show the states of a deployment; elsewhere one line for each change of a status."""
        if is_terminal():
            with Live(console=_console(), auto_refresh=False, transient=True) as live:

                def draw(states: Sequence[Progress]) -> None:
                    width = shutil.get_terminal_size().columns
                    stopping = [_STOPPING] if deployment.is_interrupted else []
                    live.update(Text("\n".join((*progress_lines(states, width), *stopping))), refresh=True)

                yield draw
            return
        shown: set[tuple[str, Operation, Status]] = set()

        def log(states: Sequence[Progress]) -> None:
            for state in states:
                key = (state.stack, state.operation, state.status)
                if state.status is not Status.WAITING and key not in shown:
                    shown.add(key)
                    notify(progress_lines([state], LOG_WIDTH))

        yield log

    @contextmanager
    def applies(self, names: Sequence[str]) -> Iterator[Callable[[Event, NodeResult], None]]:
        """Show the progress of applies."""
        with board_of(names, "logging in", "0") as board:
            yield lambda event, result: take_event(board.rows[event.node], event, result)

    @contextmanager
    def audits(self, names: Sequence[str]) -> Iterator[Callable[[Event], None]]:
        """Show the progress of audits."""
        with board_of(names, "waiting") as board:
            yield lambda event: take_audit_event(board.rows[event.node], event)

    @contextmanager
    def rehearsal(self, *, in_log: bool) -> Iterator[Callable[[str, str, bool], None]]:
        """Show the phases of stacks: a live table, else, with `in_log`, one line for each phase of a stack."""
        tally = _Tally()

        def count(stack: str, doing: str, is_in_cloud: bool) -> None:  # noqa: FBT001  the form of the protocol
            if tally.count(stack, doing, is_in_cloud=is_in_cloud) and in_log and not is_terminal():
                notify([f"{stack}: {doing}"])

        with Live(tally, console=_console(), transient=True) if is_terminal() else nullcontext():
            yield count
