"""The commands that run Pulumi's engine on the stacks of the fleet: preview, up, refresh, destroy."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, open_fleet, plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, Parts, notify, show, show_document
from bedplate.deploy.engine import Engine, StackState, open_engine
from bedplate.deploy.progress import Operation, Progress, Status
from bedplate.deploy.run import Deployment, Task, Watch, failed
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.lock import lock_path, record_images, record_plan
from bedplate.plan import FleetPlan
from bedplate.plan.planner import unrecorded_images
from bedplate.plan.stacks import Action, Step, parts, stack_name, stack_order
from bedplate.report.deploy import cause_lines, change_lines, kept_lines, progress_lines

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Session:
    """A fleet with its engine: the stacks that exist, and the steps for the parts that the operator named."""

    plan: FleetPlan
    engine: Engine
    states: Mapping[str, StackState]
    steps: tuple[Step, ...]

    def tasks(self, operation: Operation | None = None) -> tuple[tuple[Task, ...], ...]:
        """Return the steps as operations of stacks; with an operation, that one for every stack."""
        return tuple(
            tuple((stack_name(self.plan, part), operation or Operation(step.action)) for part in step.parts)
            for step in self.steps
        )

    def existing(self, operation: Operation) -> tuple[tuple[Task, ...], ...]:
        """Return one step with the operation for every stack that has resources."""
        tasks = [task for step in self.tasks(operation) for task in step]
        return (tuple((name, kind) for name, kind in tasks if self.is_deployed(name)),)

    def is_deployed(self, stack: str) -> bool:
        """Whether the backend has resources of the stack."""
        return stack in self.states and self.states[stack].resources > 0


def preview(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, json: Json = False) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    session = _open(fleet, plan_of(fleet), stack or [], Action.UP)
    states = _preview(session)
    if json:
        show_document({"stacks": {state.stack: dict(state.changes) for state in states}})
    else:
        show(change_lines(states))
        show(_new_lines(session))
    return _status(states)


def up(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Deploy the fleet.

    Records missing addresses and images, shows a preview, asks, then runs every stack in order, regions in parallel.
    The exit status is 6 if a stack failed; the same command continues.
    """
    plan = _recorded(fleet, yes=yes)
    session = _open(fleet, plan, stack or [], Action.UP)
    previews = _preview(session)
    if _status(previews):
        return _status(previews)
    changes = {state.stack: state.changes for state in previews}
    if session.existing(Operation.UP)[0] and not any(changes.values()) and not tuple(_new_lines(session)):
        show(["no change"])
        return 0
    show(change_lines(previews))
    show(_new_lines(session))
    _confirm("deploy?", yes=yes)
    deployment = Deployment(session.engine, session.tasks(), changes)
    return _finish(_watched(deployment), f"bedplate up {fleet}")


def refresh(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare; the exit status is 3 if AWS differs.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Compare the state of the stacks with AWS.

    Without --check, the differences are written into the state; AWS does not change.
    """
    session = _open(fleet, plan_of(fleet), stack or [], Action.UP)
    states = _watched(Deployment(session.engine, session.existing(Operation.CHECK)))
    differences = {state.stack: dict(state.differences) for state in states if state.differences}
    if json:
        show_document(
            {"drift": {name: {key: list(keys) for key, keys in rows.items()} for name, rows in differences.items()}}
        )
    else:
        show(
            f"{name}  {resource}  {', '.join(keys) or 'missing'}"
            for name, rows in differences.items()
            for resource, keys in rows.items()
        )
    if status := _status(states):
        return status
    if check or not differences:
        return ViolationError.exit_code if differences else 0
    _confirm("write these values into the state?", yes=yes)
    return _finish(
        _watched(Deployment(session.engine, session.existing(Operation.REFRESH))), f"bedplate refresh {fleet}"
    )


def destroy(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Delete what was deployed, except for data.

    File systems, buckets and keys are protected and kept.
    """
    plan = plan_of(fleet)
    session = _open(fleet, plan, stack or [], Action.DESTROY)
    tasks = tuple(tuple(task for task in step if session.is_deployed(task[0])) for step in session.tasks())
    tasks = tuple(step for step in tasks if step)
    if not tasks:
        show(["nothing is deployed"])
        return 0
    show(f"{name:<24} {session.states[name].resources} resources" for step in tasks for name, _ in step)
    _confirm("destroy?", yes=yes)
    states = _watched(Deployment(session.engine, tasks))
    after = session.engine.stack_states()
    show(kept_lines((name, after[name].resources) for step in tasks for name, _ in step if name in after))
    return _finish(states, f"bedplate destroy {fleet}")


def _open(fleet: Path, plan: FleetPlan, names: Sequence[str], action: Action) -> Session:
    """Return the session; raise InputError for an unknown part, or if a killed run left operations behind."""
    for name in names:
        if name not in parts(plan):
            raise InputError(f"the fleet {plan.name} has no part {name}", fix=f"write one of {', '.join(parts(plan))}")
    engine = open_engine(fleet.absolute().parent)
    open_account(plan)
    order = stack_order(None, plan) if action is Action.UP else stack_order(plan, None)
    chosen = (Step(step.action, tuple(part for part in step.parts if not names or part in names)) for step in order)
    session = Session(plan, engine, engine.stack_states(), tuple(step for step in chosen if step.parts))
    for stack, _ in session.existing(Operation.UP)[0]:
        if pending := engine.pending_operations(stack):
            raise InputError(
                f"a run of {stack} was killed; unknown result of: {', '.join(pending)}", fix="run `bedplate recover`"
            )
    return session


def _recorded(fleet: Path, *, yes: bool) -> FleetPlan:
    """Return the plan; record its addresses and images in the lock after a confirmation, if any is missing."""
    plan = plan_of(fleet)
    loaded, catalog = open_fleet(fleet), load_catalog()
    images = unrecorded_images(plan, catalog)
    if plan.new_blocks or plan.new_people:
        notify([f"fleet.lock lacks {len(plan.new_blocks)} blocks and {len(plan.new_people)} user ids of this plan"])
        _confirm("record them?", yes=yes)
        record_plan(lock_path(fleet), loaded.fleet, catalog)
    if images:
        from bedplate.account.facts import newest_images

        record_images(lock_path(fleet), plan.name, newest_images(open_account(plan), images))
        notify([f"recorded {len(images)} images in fleet.lock"])
    return plan_of(fleet)


def _preview(session: Session) -> tuple[Progress, ...]:
    return _watched(Deployment(session.engine, session.existing(Operation.PREVIEW)))


def _new_lines(session: Session) -> Iterator[str]:
    """Yield a line for each stack that does not exist yet."""
    for step in session.tasks():
        for stack, _ in step:
            if not session.is_deployed(stack):
                yield f"{stack:<24} new"


def _confirm(question: str, *, yes: bool) -> None:
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
    if sys.stderr.isatty():
        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

            def draw(states: Sequence[Progress]) -> None:
                width = shutil.get_terminal_size().columns
                live.update(Text("\n".join(progress_lines(states, width))), refresh=True)

            yield draw
        return
    shown: set[tuple[str, Operation, Status]] = set()

    def log(states: Sequence[Progress]) -> None:
        for state in states:
            if (
                key := (state.stack, state.operation, state.status)
            ) not in shown and state.status is not Status.WAITING:
                shown.add(key)
                notify(progress_lines([state], 200))

    yield log


def _status(states: Sequence[Progress]) -> int:
    notify(cause_lines(states))
    return PartialError.exit_code if any(failed(states)) else 0


def _finish(states: Sequence[Progress], command: str) -> int:
    """Print the result of each stack and the command that continues; return the exit status."""
    show(progress_lines(states, 200))
    status = _status(states)
    if status:
        notify([f"  fix  correct the cause, then run `{command}` again: it continues"])
    return status
