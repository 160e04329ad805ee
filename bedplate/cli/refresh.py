"""The command that compares Pulumi's state with AWS, and adopts what is real: refresh."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.deploy import Yes, confirm, exit_status, finish, folder_plan, require_complete, watched
from bedplate.cli.fleet import open_account
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, Parts, show, show_document
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation
from bedplate.deploy.run import Deployment
from bedplate.errors import InputError, ViolationError
from bedplate.files import try_out, write_whole
from bedplate.plan import FleetPlan
from bedplate.plan.stacks import chosen_parts, stack_name
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
    plan = folder_plan(fleet)
    open_account(plan)
    engine = open_engine(fleet.absolute().parent)
    stacks = _deployed_stacks(engine, plan, stack or [])
    states = watched(Deployment(engine, (tuple((name, Operation.CHECK) for name in stacks),)))
    if junit:
        write_whole(junit, drift_junit(states))
    if json:
        show_document(drift_document(states))
    else:
        show(drift_lines(states))
    status = exit_status(states)
    drifted = [state for state in states if state.differences]
    if check:
        status = ViolationError.exit_code if drifted else status
        return _worst(status, _audit(fleet)) if nodes else status
    if status or not drifted:
        return status
    confirm("adopt the real values?", yes=yes)
    tasks = tuple((state.stack, Operation.REFRESH) for state in drifted)
    totals = {(state.stack, Operation.REFRESH): len(state.steps) for state in drifted}
    return finish(watched(Deployment(engine, (tasks,), totals)), f"bedplate refresh {fleet}")


def _deployed_stacks(engine: Engine, plan: FleetPlan, names: list[str]) -> tuple[str, ...]:
    """Return the chosen stacks that have resources. Raises InputError if a killed run left operations behind."""
    states = engine.states(plan.name)
    deployed = [part for part in chosen_parts(plan, names) if part in states and not states[part].is_empty]
    require_complete(plan, {part: states[part] for part in deployed})
    return tuple(stack_name(plan, part) for part in deployed)


def _audit(fleet: Path) -> int:
    """Audit all permanent machines; return the exit status."""
    # Slow: it imports SSH and the compliance rules.
    from bedplate.cli.node_apply import audit

    return audit(fleet=fleet)


def _worst(*statuses: int) -> int:
    """Return 3 for drift anywhere, else the status of what was not checked."""
    return ViolationError.exit_code if ViolationError.exit_code in statuses else max(statuses)
