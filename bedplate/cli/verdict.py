"""What the stack-level checks say of what a rehearsal made."""

from itertools import chain

from bedplate.audit.document import graph_of
from bedplate.audit.fault import StackFault
from bedplate.audit.run import audit
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.report import Phase, Report, StackReport
from bedplate.rehearsal.stack import Run


def judged(report: Report) -> tuple[StackFault, ...]:
    """Return every fault of all stacks together, as they were made last; none where something failed to be made."""
    runs = [_last(stack) for stack in report.stacks]
    made = [run.snapshot.entries.values() for run in runs if run]
    if report.real_failures:
        return ()
    return audit(graph_of(graph(chain.from_iterable(made)), "the rehearsal"))


def _last(stack: StackReport) -> Run | None:
    made = (stack.runs.get(phase) for phase in (Phase.CHANGE, Phase.RECOVER, Phase.CREATE))
    return next((run for run in made if run), None)
