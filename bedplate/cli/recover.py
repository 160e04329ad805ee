"""The commands that compare and repair the state of stacks: refresh, recover."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Parts, Terminal, Yes
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, ViolationError
from bedplate.files import try_out, write_whole
from bedplate.operate.deploy import exit_status
from bedplate.operate.recover import adopt, compare
from bedplate.operate.recover import recover as repair
from bedplate.report.deploy import drift_document, drift_junit, drift_lines


def refresh(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    check: Annotated[bool, typer.Option("--check", help="Only show the differences.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="Also audit all permanent machines.")] = False,
    yes: Yes = False,
    json: Json = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report.")] = None,
) -> int:
    """Adopt the real state of AWS.

    Shows each property that differs between Pulumi's state and AWS, asks, then records the real values in the state.
    `bedplate up` afterwards changes AWS back to the fleet file.

    With --check nothing is changed, and the exit status is 3 if anything differs, 6 if a stack was not checked.
    """
    if not check and (json or junit or nodes):
        raise InputError("--json, --junit and --nodes are for --check", fix="add --check")
    if json and nodes:
        raise InputError("--json and --nodes exclude each other", fix="run `bedplate node audit --json` for machines")
    if junit:
        try_out([junit])
    operator = Terminal(fleet, yes=yes)
    engine, states = compare(operator, stack or [])
    if junit:
        write_whole(junit, drift_junit(states))
    if json:
        show_document(drift_document(states))
    else:
        show(drift_lines(states))
    status = exit_status(operator, states)
    has_drifted = any(state.differences for state in states)
    if check:
        status = ViolationError.exit_code if has_drifted else status
        return _worst(status, _audit(fleet)) if nodes else status
    if status or not has_drifted:
        return status
    return adopt(operator, engine, states)


def _audit(fleet: Path) -> int:
    """Audit all permanent machines; return the exit status."""
    # Slow: it imports SSH and the compliance rules.
    from bedplate.cli.node_apply import audit

    return audit(fleet=fleet)


def _worst(*statuses: int) -> int:
    """Return 3 for drift anywhere, else the status of what was not checked."""
    return ViolationError.exit_code if ViolationError.exit_code in statuses else max(statuses)


def recover(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Repair the state after a killed run.

    Releases the lock of a dead run, adds to the state the resources that the run created without recording them, and
    reads the resources that it was changing from AWS. Asks first, and keeps a copy of the old state.
    """
    repair(Terminal(fleet, yes=yes), stack or [])
    return 0
