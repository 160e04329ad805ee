"""An apply carried out before the operator's eyes: a live line a node on a terminal, else a line an event."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.live import Live
from rich.table import Table

from bedplate.cli.output import STDERR, tell
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

    def take(self, event: Event) -> None:
        self.outcomes[event.node].take(event)
        ended = {Step.DONE: "done", Step.TROUBLE: str(event.kind)}
        self.now[event.node] = ended.get(event.step) or event.name or event.words or "looking"

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 3))
        for name, words in list(self.now.items()):
            table.add_row(name, f"{len(self.outcomes[name].changed)}", words)
        return table


def carried_out(order: Order, missing: Sequence[Event]) -> Done:
    """Carry out an order and show it; `missing` are the machines to which there is no way."""
    board = _Board({event.node: Outcome(event.node) for event in missing})
    board.outcomes |= {each.node.name: Outcome(each.node.name) for each in order.targets}
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
    board.take(event)
    line = event_line(event)
    if line and not _is_terminal():
        tell([line])


@contextmanager
def _shown(board: _Board) -> Iterator[None]:
    if not _is_terminal():
        yield
        return
    with Live(board, console=terminal(), transient=True, refresh_per_second=4):
        yield


def _is_terminal() -> bool:
    return STDERR.isatty()
