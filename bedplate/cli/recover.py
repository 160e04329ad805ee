"""Compare and repair the state of stacks: `refresh` adopts what AWS has, `recover` follows a killed run."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bedplate.cli.deploy import exit_status, finish, folder_plan, require_complete, watched
from bedplate.cli.fleet import open_account
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, Parts, Yes, confirm, notify, show, show_document
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation, resource_name
from bedplate.deploy.run import Deployment
from bedplate.deploy.state import (
    Deployment as StateDocument,
)
from bedplate.deploy.state import (
    LockedError,
    Repair,
    Unfinished,
    known_ids,
    recovered,
    root_urn,
    unfinished_operations,
    unread_urns,
)
from bedplate.errors import HeldError, InputError, PartialError, ViolationError
from bedplate.files import try_out, write_whole
from bedplate.plan import FleetPlan
from bedplate.plan.stacks import chosen_parts, stack_name
from bedplate.report.columns import counted
from bedplate.report.deploy import drift_document, drift_junit, drift_lines

if TYPE_CHECKING:
    from bedplate.account.client import AwsClient


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


def recover(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Repair the state after a killed run.

    Releases the lock of a dead run, adds to the state the resources that the run created without recording them, and
    reads the resources that it was changing from AWS. Asks first, and keeps a copy of the old state.
    """
    plan = folder_plan(fleet)
    names = [stack_name(plan, part) for part in chosen_parts(plan, stack or [])]
    engine = open_engine(fleet.absolute().parent)
    client = open_account(plan)
    notify(f"deleted {name}, which a killed run left incomplete" for name in engine.remove_damaged_files())
    for name in sorted(engine.resource_counts(plan.name).keys() & set(names)):
        _release_lock(engine, name, yes=yes)
        _repair(engine, client, name, yes=yes)
    show(["`bedplate up` continues"])
    return 0


def _release_lock(engine: Engine, stack: str, *, yes: bool) -> None:
    """Release the lock of a dead run after a confirmation. Raises HeldError for a run that may be alive."""
    try:
        # An operation of the engine reports who holds the lock, in any backend; this one reads only the stack itself.
        if root := root_urn(engine.export_state(stack)["deployment"]):
            engine.refresh(stack, [root])
    except LockedError as error:
        holders = ", ".join(map(str, error.holders)) or "an unknown process"
        if any(holder.lives_here() for holder in error.holders):
            raise HeldError(f"{stack} is locked by a live run: {holders}", fix="wait for its end") from None
        is_dead = bool(error.holders) and all(holder.is_here for holder in error.holders)
        if yes and not is_dead:
            raise HeldError(
                f"{stack} is locked by {holders}: it may be alive on another machine",
                fix="if it is dead, run `bedplate recover` without --yes",
            ) from None
        notify([f"{stack} is locked by {holders}: {'it is dead' if is_dead else 'check there that it is dead'}"])
        confirm("release the lock?", yes=yes)
        engine.release_lock(stack)


def _repair(engine: Engine, client: "AwsClient", stack: str, *, yes: bool) -> None:
    """Repair one stack. Raises PartialError, before any change, for an operation that cannot be decided."""
    state = engine.export_state(stack)
    deployment = state["deployment"]
    repairs = tuple(_found(client, stack, deployment, operation) for operation in unfinished_operations(deployment))
    if repairs:
        show([f"{stack}: {counted(len(repairs), 'unfinished operation')}", *map(_line, repairs)])
        _require_decided(stack, repairs)
        confirm("change the state?", yes=yes)
        _save_copy(engine, stack, state)
        deployment = recovered(deployment, repairs)
        engine.import_state(stack, {**state, "deployment": deployment})
    elif not unread_urns(deployment):
        show([f"{stack}: no unfinished operation"])
        return
    _read(engine, stack, deployment, repairs)


def _found(client: "AwsClient", stack: str, deployment: StateDocument, operation: Unfinished) -> Repair:
    # Slow: it imports boto3, and the SDK of Pulumi.
    from bedplate.account.client import Creation
    from bedplate.account.objects import FINDERS, REPEATABLE, find_ids
    from stacks.options import RESOURCE, STACK

    if not operation.is_creation:
        return Repair(operation)
    if operation.type in REPEATABLE:
        return Repair(operation, is_setting=True)
    if operation.type not in FINDERS:
        return Repair(operation, None)
    tags = {STACK: stack, RESOURCE: operation.name}
    creation = Creation(operation.type, operation.region, operation.resource.get("inputs", {}), tags)
    state_ids = known_ids(deployment, operation.type)
    return Repair(operation, tuple(ident for ident in find_ids(client, creation) if ident not in state_ids))


def _line(repair: Repair) -> str:
    operation = repair.operation
    match repair.ids:
        case None:
            result = "bedplate cannot search this type in AWS"
        case (ident,):
            result = f"add {ident} to the state"
        case (_, *_):
            result = f"several objects in AWS: {', '.join(repair.ids)}"
        case _ if repair.is_setting:
            result = "`up` sets it again"
        case _ if operation.is_creation:
            result = "not in AWS, `up` creates it"
        case _:
            result = "read it from AWS: it may be changed in part"
    return f"  {operation}: {result}"


def _require_decided(stack: str, repairs: Sequence[Repair]) -> None:
    if not all(repair.is_decided for repair in repairs):
        raise PartialError(
            f"{stack} was not changed: an object of the killed run is not known",
            fix='see "After a killed run" in docs/aws-operations.md of bedplate',
        )


def _save_copy(engine: Engine, stack: str, state: dict[str, Any]) -> None:
    copy = engine.folder / f"{stack}.{time.strftime('%Y%m%dT%H%M%S')}.state.json"
    write_whole(copy, json.dumps(state, indent=1).encode(), 0o600)
    notify([f"saved the old state of {stack} in {copy.name}"])


def _read(engine: Engine, stack: str, deployment: StateDocument, repairs: Sequence[Repair]) -> None:
    """Read the added resources from AWS, and those that the killed run was changing."""
    added = unread_urns(deployment)
    urns = _urns(deployment)
    changing = (repair.operation.urn for repair in repairs if repair.operation.urn in urns)
    if targets := dict.fromkeys([*added, *changing]):
        engine.refresh(stack, targets)
    remaining = _urns(engine.export_state(stack)["deployment"])
    notify(f"{stack}: {resource_name(urn)} is gone from AWS, `up` creates it" for urn in added if urn not in remaining)


def _urns(deployment: StateDocument) -> frozenset[str]:
    return frozenset(resource["urn"] for resource in deployment.get("resources") or ())
