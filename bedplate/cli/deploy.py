"""The commands that run Pulumi's engine on the stacks of the fleet: preview, up, destroy."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_loaded, plan_of
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    Json,
    Parts,
    SafeStream,
    is_terminal,
    notify,
    show,
    show_document,
)
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation, Progress, Status
from bedplate.deploy.run import Deployment, Task, Watch
from bedplate.errors import InputError, PartialError
from bedplate.folder.files import FLEET_FILE
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_images, record_plan
from bedplate.plan import FleetPlan
from bedplate.plan.planner import unrecorded_images
from bedplate.plan.stacks import Action, chosen_parts, parts, stack_name, stack_order
from bedplate.report.columns import counted
from bedplate.report.deploy import cause_lines, change_lines, kept_lines, progress_lines

_LOG_WIDTH = 200
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Session:
    """The engine, the operations of a command in their order, and the resources of each stack that exists."""

    engine: Engine
    resources: Mapping[str, int]
    steps: tuple[tuple[Task, ...], ...]

    def existing(self, operation: Operation) -> tuple[tuple[Task, ...], ...]:
        """Return one step with the operation for every stack that has resources."""
        return (tuple((stack, operation) for step in self.steps for stack, _ in step if self.resources.get(stack)),)

    def new_stacks(self) -> tuple[str, ...]:
        """Return the stacks that have no resources yet."""
        return tuple(stack for step in self.steps for stack, _ in step if not self.resources.get(stack))


def preview(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, json: Json = False) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    session = _open(fleet, _deployable(fleet, stack or []), stack or [], Action.UP)
    states = _preview(session)
    if json:
        show_document({"stacks": {state.stack: dict(state.changes) for state in states}})
    else:
        show(_preview_lines(session, states))
    return _status(states)


def up(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Deploy the fleet.

    Records missing addresses and images, shows a preview, asks, then runs every stack in order, regions in parallel.
    The exit status is 6 if a stack failed; the same command continues.
    """
    plan = _recorded(fleet, _deployable(fleet, stack or []), yes=yes)
    session = _open(fleet, plan, stack or [], Action.UP)
    previews = _preview(session)
    if status := _status(previews):
        return status
    if not session.new_stacks() and not any(state.steps for state in previews):
        show(["no change"])
        return 0
    show(_preview_lines(session, previews))
    confirm("deploy?", yes=yes)
    totals = {state.stack: len(state.steps) for state in previews}
    return _finish(_watched(Deployment(session.engine, session.steps, totals)), f"bedplate up {fleet}")


def destroy(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Delete what was deployed, except for data.

    File systems, buckets and keys are protected and kept.
    """
    plan = folder_plan(fleet)
    session = _open(fleet, plan, stack or [], Action.DESTROY)
    live = tuple(tuple(task for task in step if session.resources.get(task[0])) for step in session.steps)
    tasks = tuple(step for step in live if step)
    if not tasks:
        show(["nothing is deployed"])
        return 0
    show(f"{name:<24} {counted(session.resources[name], 'resource')}" for step in tasks for name, _ in step)
    confirm("destroy?", yes=yes)
    status = _finish(_watched(Deployment(session.engine, tasks)), f"bedplate destroy {fleet}")
    if not status:
        after = session.engine.resource_counts(plan.name)
        show(kept_lines((name, after.get(name, 0)) for step in tasks for name, _ in step))
    return status


def folder_plan(fleet: Path) -> FleetPlan:
    """Return the plan of the folder's fleet file. Raises InputError for a file that Pulumi's program ignores."""
    if fleet.name != FLEET_FILE:
        raise InputError(f"a deployment reads {FLEET_FILE} only", where=str(fleet), fix=f"rename it to {FLEET_FILE}")
    return plan_of(fleet)


def _deployable(fleet: Path, names: Sequence[str]) -> FleetPlan:
    """Return the plan; raise FleetFaults for what the programs of the stacks would refuse."""
    plan = folder_plan(fleet)
    for part in chosen_parts(plan, names):
        load_fleet(fleet, load_catalog(), part=part)
    return plan


def _open(fleet: Path, plan: FleetPlan, names: Sequence[str], action: Action) -> Session:
    """Return the session. Raises InputError if the lock is incomplete, or if a killed run left operations behind."""
    if action is Action.UP:
        # Slow: it imports the SDK.
        from stacks.program import require_image_ids, require_recorded

        require_recorded(plan, fleet)
        require_image_ids(plan, load_catalog(), fleet)
    chosen = chosen_parts(plan, names)
    engine = open_engine(fleet.absolute().parent)
    open_account(plan)
    order = stack_order(None, plan) if action is Action.UP else stack_order(plan, None)
    steps = (tuple((stack_name(plan, part), Operation(action)) for part in chosen if part in s.parts) for s in order)
    session = Session(engine, engine.resource_counts(plan.name), tuple(step for step in steps if step))
    if action is Action.UP:
        notify(_removed_lines(plan, session.resources))
    for stack in (stack for step in session.steps for stack, _ in step if stack in session.resources):
        if pending := engine.pending_operations(stack):
            raise InputError(
                f"a killed run of {stack} left operations with unknown results: {', '.join(pending)}",
                fix="run `bedplate recover`",
            )
    return session


def _removed_lines(plan: FleetPlan, resources: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning for each deployed stack of the fleet that the plan does not have."""
    names = {stack_name(plan, part) for part in parts(plan)}
    for name in sorted(resources.keys() - names):
        if resources[name]:
            kept = counted(resources[name], "resource")
            yield f"warning: {name} has {kept} and is not in the fleet file: see docs/teardown.md of bedplate"


def _recorded(fleet: Path, plan: FleetPlan, *, yes: bool) -> FleetPlan:
    """Return the plan; record its addresses and images in the lock after a confirmation, if any is missing."""
    missing = (*plan.new_blocks, *plan.new_people)
    images = unrecorded_images(plan, load_catalog())
    if not missing and not images:
        return plan
    if missing:
        notify([f"fleet.lock lacks {counted(len(plan.new_blocks), 'block')} and {len(plan.new_people)} user ids"])
        confirm("record them?", yes=yes)
        record_plan(lock_path(fleet), load_fleet(fleet, load_catalog()).fleet, load_catalog())
    if images:
        from bedplate.account.facts import newest_images

        record_images(lock_path(fleet), plan.name, newest_images(open_account(plan), images))
        notify([f"recorded {counted(len(images), 'image')} in fleet.lock"])
    return plan_loaded(load_fleet(fleet, load_catalog()))


def _preview(session: Session) -> tuple[Progress, ...]:
    return _watched(Deployment(session.engine, session.existing(Operation.PREVIEW)))


def _preview_lines(session: Session, states: Sequence[Progress]) -> Iterator[str]:
    yield from change_lines(states)
    yield from (f"{stack:<24} new" for stack in session.new_stacks())


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; raise InputError without one, and if the operator declines."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("there is no terminal to confirm this on", fix="add --yes")
    if not typer.confirm(question, err=True):
        raise InputError("not confirmed: nothing was done")


def _watched(deployment: Deployment) -> tuple[Progress, ...]:
    with _table() as watch:
        return deployment.run(watch)


@contextmanager
def _table() -> Iterator[Watch]:
    """Show a live table on a terminal; elsewhere one line for each change of a status."""
    if is_terminal():
        console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def draw(states: Sequence[Progress]) -> None:
                width = shutil.get_terminal_size().columns
                live.update(Text("\n".join(progress_lines(states, width))), refresh=True)

            yield draw
        return
    shown: set[tuple[str, Operation, Status]] = set()

    def log(states: Sequence[Progress]) -> None:
        for state in states:
            key = (state.stack, state.operation, state.status)
            if state.status is not Status.WAITING and key not in shown:
                shown.add(key)
                notify(progress_lines([state], _LOG_WIDTH))

    yield log


def _status(states: Sequence[Progress]) -> int:
    """Print the errors; return the exit status, that of the error if nothing was changed."""
    notify(cause_lines(states))
    codes = {state.exit_code for state in states if state.status is Status.FAILED}
    if not codes and all(state.status is Status.DONE for state in states):
        return 0
    return PartialError.exit_code if len(codes) != 1 or any(state.steps for state in states) else codes.pop()


def _finish(states: Sequence[Progress], command: str) -> int:
    """Print the result of each stack and the command that continues; return the exit status."""
    show(progress_lines(states, _LOG_WIDTH))
    status = _status(states)
    if status:
        notify([f"  fix  correct the cause, then run `{command}` again: it continues"])
    return status
