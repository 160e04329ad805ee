"""What the stack-level checks say of what a rehearsal made."""

from itertools import chain

from bedplate.audit.document import graph_of
from bedplate.audit.fault import StackFault
from bedplate.audit.run import audit
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.report import Phase, Report


def judged(report: Report) -> tuple[StackFault, ...]:
    """Return every fault of all stacks together, as they were made last; none where something failed to be made."""
    runs = [stack.runs.get(Phase.CHANGE) or stack.runs.get(Phase.CREATE) for stack in report.stacks]
    made = [run.snapshot.entries.values() for run in runs if run]
    if any(stack.failures for stack in report.stacks):
        return ()
    return audit(graph_of(graph(chain.from_iterable(made)), "the rehearsal"))
