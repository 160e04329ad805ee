"""The board of a command that works on many machines: a live row each, on a terminal; never a line of a log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.cli.output import is_terminal
from bedplate.cli.terminal import terminal

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
