"""An audit carried out before the operator's eyes: a live row a machine on a terminal, else a line when one is done."""

from collections.abc import Sequence

from bedplate.cli.node_board import DONE, Board, Row, shown
from bedplate.cli.output import is_terminal, tell
from bedplate.nodes.audit import Audit, audited
from bedplate.nodes.event import Event, Step
from bedplate.nodes.verdict import Findings
from bedplate.report.compliance import event_line


def looked_at(audit: Audit, nodes: Sequence[str]) -> tuple[Findings, ...]:
    """Audit machines and show it; return what is found on each, in their order."""
    board = Board({name: Row("waits for its turn") for name in nodes})
    with shown(board):
        return tuple(audited(audit, nodes, lambda event: _take(board.rows[event.node], event)))


def _take(row: Row, event: Event) -> None:
    """Enter what has happened, told by the thread that looks at the machine."""
    row.doing = event.name or event.words
    done = event.changed + event.unchanged
    if rules := done + event.ahead:
        row.figure = f"{done} of {rules}" + (f", {event.changed} violated" if event.changed else "")
    row.end = DONE if event.step is Step.DONE else str(event.kind or "")
    line = event_line(event)
    if line and not is_terminal():
        tell([line])
