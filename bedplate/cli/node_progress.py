"""An apply carried out before the operator's eyes: a live row a node on a terminal, else a line an event."""

from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.cli.node_board import DONE, Board, Row, shown
from bedplate.cli.output import is_terminal, tell
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
        return event.step is not Step.NOTE or event.words != before


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
