"""`bedplate audit-graph`: what is wrong with the resources of a graph, whoever made it."""

from typing import Annotated

import typer

from bedplate.cli.graph_file import place_of, text_of
from bedplate.cli.options import Json
from bedplate.cli.output import show, show_document
from bedplate.errors import ViolationError


def audit_graph(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="What `graph` printed; - is stdin.")],
    *,
    json: Json = False,
) -> int:
    """Check a graph: reach, encryption, permissions."""
    from bedplate.audit.document import read_graph
    from bedplate.audit.run import audit
    from bedplate.checks.fault import Level
    from bedplate.report.audit import audit_lines, stack_fault_document

    where = place_of(graph)
    found = read_graph(text_of(graph), where)
    faults = audit(found)
    if json:
        show_document({"faults": stack_fault_document(faults)})
    else:
        show(audit_lines(where, faults, len(found.nodes)))
    return ViolationError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0
