"""What a rehearsal shows while it works: live lines on a terminal, else one line whenever a stack begins a phase."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table

from bedplate.cli.output import is_terminal, tell
from bedplate.cli.terminal import terminal
from bedplate.rehearsal.rehearse import Watch
from bedplate.rehearsal.report import Phase
from bedplate.rehearsal.step import Step

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
