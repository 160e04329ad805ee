"""An apply carried out before the operator's eyes: a live line a node on a terminal, else a line an event."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.cli.output import is_terminal, tell
from bedplate.cli.terminal import terminal
from bedplate.nodes.engine import Engine, working
from bedplate.nodes.event import Event, Step
from bedplate.nodes.order import Order
from bedplate.nodes.outcome import Outcome
from bedplate.report.apply import event_line

STOPPING = "stopping when each node has finished what it is at; Ctrl-C once more cuts the connections"


@dataclass
class Done:
    """What became of every node, in the order in which they were named."""

    outcomes: tuple[Outcome, ...]
    interrupted: bool = False


@dataclass
class _Board:
    """What each node is doing now."""

    outcomes: dict[str, Outcome]
    now: dict[str, str] = field(default_factory=dict)
    """Of those at work."""

    def take(self, event: Event) -> bool:
        """Enter what has happened; tell whether it is news."""
        self.outcomes[event.node].take(event)
        before, self.now[event.node] = self.now.get(event.node), event.name or event.words or "looking"
        if event.step in (Step.DONE, Step.TROUBLE):
            del self.now[event.node]
        return event.step is not Step.NOTE or event.words != before

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        """Yield the count and a row a node; those that have ended give way where the screen is too low."""
        every, room = list(self.outcomes), console.size.height - 3
        shown = every if len(every) <= room else list(self.now)[:room]
        table = Table.grid(padding=(0, 3))
        for _column in range(3):
            table.add_column(no_wrap=True, overflow="ellipsis")
        for name in shown:
            table.add_row(name, f"{len(self.outcomes[name].changed)}", self._doing(name))
        more = len(every) - len(shown)
        yield Text(self._count())
        yield table
        if more:
            yield Text(f"and {more} more")

    def _count(self) -> str:
        done = sum(each.is_done for each in self.outcomes.values())
        failed = sum(each.trouble is not None for each in self.outcomes.values())
        return f"{done} of {len(self.outcomes)} done" + (f", {failed} with trouble" if failed else "")

    def _doing(self, name: str) -> str:
        trouble = self.outcomes[name].trouble
        return f"{trouble.kind}" if trouble else self.now.get(name, "done")


def carried_out(order: Order, missing: Sequence[Event]) -> Done:
    """Carry out an order and show it; `missing` are the machines to which there is no way."""
    board = _Board({event.node: Outcome(event.node) for event in missing})
    board.outcomes |= {each.node.name: Outcome(each.node.name) for each in order.targets}
    board.now = dict.fromkeys((each.node.name for each in order.targets), "logging in")
    done = Done(tuple(board.outcomes.values()))
    with _shown(board):
        for event in missing:
            _take(board, event)
        if order.targets:
            with working(order) as engine:
                done.interrupted = _follow(engine, board)
    return done


def _follow(engine: Engine, board: _Board) -> bool:
    """Take what happens to its end; a first Ctrl-C stops, a second one leaves. Tell whether there was any."""
    events, interrupted = engine.events(), False
    while True:
        try:
            for event in events:
                _take(board, event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            tell([STOPPING])
            engine.stop()
            events = engine.events()
        else:
            return interrupted


def _take(board: _Board, event: Event) -> None:
    is_news, line = board.take(event), event_line(event)
    if line and is_news and not is_terminal():
        tell([line])


@contextmanager
def _shown(board: _Board) -> Iterator[None]:
    if not is_terminal():
        yield
        return
    with Live(board, console=terminal(), transient=True, refresh_per_second=4):
        yield
