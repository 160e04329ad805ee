"""Compare and repair the state of stacks: `refresh` adopts what AWS has, `recover` follows a killed run."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.account.client import AwsClient, Creation
from bedplate.account.objects import FINDERS, REPEATABLE, find_ids
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation, Progress, resource_name
from bedplate.deploy.run import Deployment
from bedplate.deploy.state import (
    LockedError,
    Repair,
    StateDocument,
    Unfinished,
    known_ids,
    recovered,
    root_urn,
    unfinished_operations,
    unread_urns,
)
from bedplate.errors import BedplateError, HeldError, PartialError, error_lines
from bedplate.files import try_out, write_whole
from bedplate.operate import Operator, Result, open_account
from bedplate.operate.deploy import finish, folder_plan, require_complete, watched
from bedplate.plan import FleetPlan
from bedplate.plan.stacks import chosen_parts, stack_name
from bedplate.report.columns import counted
from bedplate.report.deploy import drift_document, drift_junit, drift_lines
from stacks.options import RESOURCE, STACK


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between the state of stacks and AWS."""

    engine: Engine
    states: tuple[Progress, ...]

    @property
    def has_drifted(self) -> bool:
        """Whether anything differs."""
        return any(state.differences for state in self.states)

    @property
    def result(self) -> Result:
        """The differences as lines and as JSON."""
        return Result(drift_lines(self.states), drift_document(self.states))

    def adopt(self, operator: Operator) -> int:
        """Record the real values in the state of stacks that differ, after a confirmation; return the exit status."""
        operator.confirm("adopt the real values?")
        drifted = [state for state in self.states if state.differences]
        tasks = tuple((state.stack, Operation.REFRESH) for state in drifted)
        totals = {(state.stack, Operation.REFRESH): len(state.steps) for state in drifted}
        adopted = watched(operator, Deployment(self.engine, (tasks,), totals))
        return finish(operator, self.engine, adopted, f"bedplate refresh {operator.fleet}")


def compare(operator: Operator, names: Sequence[str], junit: Path | None) -> Comparison:
    """Return the differences of these stacks, or all, and write them to a file as JUnit XML."""
    if junit:
        try_out([junit])
    plan = folder_plan(operator)
    open_account(plan)
    engine = open_engine(operator.fleet.absolute().parent)
    stacks = _deployed_stacks(engine, plan, names)
    states = watched(operator, Deployment(engine, (tuple((name, Operation.CHECK) for name in stacks),)))
    if junit:
        write_whole(junit, drift_junit(states))
    return Comparison(engine, states)


def _deployed_stacks(engine: Engine, plan: FleetPlan, names: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen stacks that have resources. Raises InputError if a killed run left operations behind."""
    states = engine.states(plan.name)
    deployed = [part for part in chosen_parts(plan, names) if part in states and not states[part].is_empty]
    require_complete(plan, {part: states[part] for part in deployed})
    return tuple(stack_name(plan, part) for part in deployed)


def recover(operator: Operator, names: Sequence[str]) -> Result:
    """Repair the state of these stacks, or all, after a killed run; return the repairs.

    A stack that is locked or cannot be repaired stops no other; the exit status is that of its error.
    """
    plan = folder_plan(operator)
    stacks = {stack_name(plan, part) for part in chosen_parts(plan, names)}
    engine = open_engine(operator.fleet.absolute().parent)
    client = open_account(plan)
    operator.notify(f"deleted {name}, which a killed run left incomplete" for name in engine.remove_damaged_files())
    repairs: dict[str, list[str]] = {}
    errors: dict[str, BedplateError] = {}
    for name in sorted(engine.resource_counts(plan.name).keys() & stacks):
        try:
            _release_lock(operator, engine, name)
            repairs[name] = _repair(operator, engine, client, name)
        except (PartialError, HeldError) as error:
            errors[name] = error
    operator.notify(error_lines(*errors.values()))
    document = {"stacks": repairs, "errors": {name: error.what for name, error in errors.items()}}
    if errors:
        return Result((), document, [*errors.values()][-1].exit_code)
    operator.show(["`bedplate up` continues"])
    return Result((), document)


def _release_lock(operator: Operator, engine: Engine, stack: str) -> None:
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
        if operator.yes and not is_dead:
            raise HeldError(
                f"{stack} is locked by {holders}: it may be alive on another machine",
                fix="if it is dead, run `bedplate recover` without --yes",
            ) from None
        advice = "it is dead" if is_dead else "check there that it is dead"
        operator.notify([f"{stack} is locked by {holders}: {advice}"])
        operator.confirm("release the lock?")
        engine.release_lock(stack)


def _repair(operator: Operator, engine: Engine, client: AwsClient, stack: str) -> list[str]:
    """Return the repairs of a stack. Raises PartialError, before any change, for one that cannot be decided."""
    state = engine.export_state(stack)
    deployment = state["deployment"]
    repairs = tuple(_found(client, stack, deployment, operation) for operation in unfinished_operations(deployment))
    lines = [*map(_line, repairs)]
    if repairs:
        operator.show([f"{stack}: {counted(len(repairs), 'unfinished operation')}", *(f"  {line}" for line in lines)])
        _require_decided(stack, repairs)
        operator.confirm("change the state?")
        _save_copy(operator, engine, stack, state)
        deployment = recovered(deployment, repairs)
        engine.import_state(stack, {**state, "deployment": deployment})
    elif not unread_urns(deployment):
        operator.show([f"{stack}: no unfinished operation"])
        return lines
    _read(operator, engine, stack, deployment, repairs)
    return lines


def _found(client: AwsClient, stack: str, deployment: StateDocument, operation: Unfinished) -> Repair:
    if not operation.is_creation:
        return Repair(operation)
    if operation.type.startswith("pulumi:"):
        # A provider or a component: nothing in AWS.
        return Repair(operation, ())
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
    return f"{operation}: {result}"


def _require_decided(stack: str, repairs: Sequence[Repair]) -> None:
    if not all(repair.is_decided for repair in repairs):
        raise PartialError(
            f"{stack} was not changed: an object of the killed run is not known",
            fix='see "After a killed run" in docs/aws-operations.md of bedplate',
        )


def _save_copy(operator: Operator, engine: Engine, stack: str, state: dict[str, Any]) -> None:
    copy = engine.folder / f"{stack}.{time.strftime('%Y%m%dT%H%M%S')}.state.json"
    write_whole(copy, json.dumps(state, indent=1).encode(), 0o600)
    operator.notify([f"saved the old state of {stack} in {copy.name}"])


def _read(operator: Operator, engine: Engine, stack: str, deployment: StateDocument, repairs: Sequence[Repair]) -> None:
    """Read the added resources from AWS, and those that the killed run was changing."""
    added = unread_urns(deployment)
    urns = _urns(deployment)
    changing = (repair.operation.urn for repair in repairs if repair.operation.urn in urns)
    if targets := dict.fromkeys([*added, *changing]):
        engine.refresh(stack, targets)
    remaining = _urns(engine.export_state(stack)["deployment"])
    gone = [resource_name(urn) for urn in added if urn not in remaining]
    operator.notify(f"{stack}: {name} is gone from AWS, `up` creates it" for name in gone)


def _urns(deployment: StateDocument) -> frozenset[str]:
    return frozenset(resource["urn"] for resource in deployment.get("resources") or ())
