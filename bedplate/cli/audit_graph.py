"""`bedplate audit-graph`: what is wrong with the resources of a graph, whoever made it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Json
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, ViolationError

STDIN = "-"


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

    where = "stdin" if graph == STDIN else graph
    found = read_graph(_text(graph), where)
    faults = audit(found)
    if json:
        show_document({"faults": stack_fault_document(faults)})
    else:
        show(audit_lines(where, faults, len(found.nodes)))
    return ViolationError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


def _text(graph: str) -> str:
    """Return what the file or stdin holds; InputError says why it cannot be read."""
    fix = "give a file with what `bedplate graph` prints"
    try:
        data = sys.stdin.buffer.read() if graph == STDIN else Path(graph).read_bytes()
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start:,} is not UTF-8", where=graph, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path is like that"
        raise InputError(f"{graph} cannot be read: {reason}", fix=fix) from None
