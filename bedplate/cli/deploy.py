"""The commands that run Pulumi's engine on the stacks of the fleet: preview, up, destroy."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Annotated, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bedplate.account.backend import create_role, missing_roles, service_roles
from bedplate.account.client import AwsClient, failure_lines
from bedplate.account.facts import newest_images, read_quotas
from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_loaded, plan_of
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    Json,
    Parts,
    SafeStream,
    Yes,
    confirm,
    is_terminal,
    notify,
    show,
    show_document,
)
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import Operation, Progress, Status
from bedplate.deploy.run import Deployment, Task, Watch
from bedplate.deploy.state import Resource, StackState, deployed_layout, kept_price, recorded_price
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.folder.files import FLEET_FILE
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_etcd, record_images, record_plan
from bedplate.plan import FleetPlan, bill
from bedplate.plan.cost import quota_needs
from bedplate.plan.planner import unrecorded_images
from bedplate.plan.record import FORMING
from bedplate.plan.stacks import (
    LINKS,
    SHARED,
    Action,
    chosen_parts,
    layout,
    layout_order,
    parts,
    parts_read,
    stack_name,
)
from bedplate.report.columns import counted
from bedplate.report.deploy import (
    DESTRUCTIVE,
    cause_lines,
    change_lines,
    kept_lines,
    price_lines,
    progress_lines,
    quota_warning_lines,
    removal_lines,
)

_LOG_WIDTH = 200
_STOPPING = "stopping: operations that have begun are completed"
NoMachines = Annotated[bool, typer.Option("--no-machines", help="Do not configure machines after the deployment.")]


@dataclass(frozen=True, slots=True)
class Session:
    """The engine, what is deployed by part, and the operations of a command in their order."""

    plan: FleetPlan
    account: AwsClient
    engine: Engine
    states: Mapping[str, StackState]
    steps: tuple[tuple[Task, ...], ...]

    def parts(self, operation: Operation) -> tuple[str, ...]:
        """Return the parts whose stacks have the operation, in order."""
        prefix = stack_name(self.plan, "")
        return tuple(name.removeprefix(prefix) for step in self.steps for name, what in step if what is operation)

    def new_parts(self) -> tuple[str, ...]:
        """Return the parts to deploy whose stacks have no resources, or will have none by then."""
        empty = {part for part, state in self.states.items() if state.is_empty}
        existing = self.states.keys() - empty - {*self.parts(Operation.DESTROY)}
        return tuple(part for part in self.parts(Operation.UP) if part not in existing)

    def tasks(self, chosen: Iterable[str], operation: Operation) -> tuple[Task, ...]:
        """Return an operation on the stacks of parts."""
        return tuple((stack_name(self.plan, part), operation) for part in chosen)


def preview(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, json: Json = False) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    session = _open(fleet, _deployable(fleet, stack or []), stack or [], Action.UP)
    _require_recorded(fleet, session.plan)
    states = _preview(session)
    if json:
        deleted = {stack: len(resources) for stack, resources in _deleted(session).items()}
        new = [stack for stack, _ in session.tasks(session.new_parts(), Operation.UP)]
        show_document(
            {
                "stacks": {
                    state.stack: None if state.status is Status.LATER else dict(state.changes) for state in states
                },
                "new": new,
                "deleted": deleted,
            }
        )
    else:
        _show_preview(session, states)
    return exit_status(states)


def up(
    fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False, no_machines: NoMachines = False
) -> int:
    """Deploy the fleet.

    Records missing addresses and images, creates a missing backend, shows a preview, asks, then runs every stack in
    order, regions in parallel. Stacks that the fleet file no longer has are destroyed. Without --stack, it then applies
    roles to running machines. The exit status is 6 if a stack or machine failed; the same command continues.
    """
    if (status := _up(fleet, stack, yes=yes)) or stack or no_machines:
        return status
    from bedplate.cli.machines import ready_machines  # slow

    return ready_machines(fleet, _again("up", fleet, None))


def _up(fleet: Path, stack: Sequence[str] | None, *, yes: bool) -> int:
    """Deploy the stacks."""
    plan = _deployable(fleet, stack or [])
    _ensure_backend(plan, fleet, yes=yes)
    session = _open(fleet, plan, stack or [], Action.UP)
    session = replace(session, plan=with_authorities(fleet, _recorded(fleet, session, yes=yes)))
    previews = _preview(session)
    if status := exit_status(previews):
        return status
    is_changed = any(state.steps or state.status is Status.LATER for state in previews)
    if not (is_changed or session.new_parts() or session.parts(Operation.DESTROY)):
        show(["no change"])
        return 0
    _warn_of_quotas(session)
    roles = _missing_roles(session)
    _show_preview(session, previews)
    show(f"{role} will be created in the account" for role in roles)
    confirm("deploy?", yes=yes)
    for role, service in roles.items():
        create_role(session.account, session.plan.home.name, role, service)
    totals = {(state.stack, Operation.UP): len(state.steps) for state in previews}
    return finish(_deploy(session, totals), _again("up", fleet, stack))


def destroy(fleet: FleetFile = DEFAULT_FLEET, *, stack: Parts = None, yes: Yes = False) -> int:
    """Delete what was deployed, except for data.

    File systems, buckets and keys are protected and kept.
    """
    session = _open(fleet, folder_plan(fleet), stack or [], Action.DESTROY)
    deleted = _deleted(session)
    if not deleted:
        show(["nothing is deployed", *_kept_lines(session.plan, session.states)])
        return 0
    _show_red(chain.from_iterable(removal_lines(name, resources) for name, resources in deleted.items()))
    confirm("destroy?", yes=yes)
    status = finish(_deploy(session, {}), _again("destroy", fleet, stack))
    if not status:
        show(_kept_lines(session.plan, session.engine.states(session.plan.name)))
    return status


def folder_plan(fleet: Path) -> FleetPlan:
    """Return the plan of the folder's fleet file. Raises InputError for a file that Pulumi's program ignores."""
    if fleet.name != FLEET_FILE and fleet.exists():
        raise InputError(f"a deployment reads {FLEET_FILE} only", where=str(fleet), fix=f"rename it to {FLEET_FILE}")
    return plan_of(fleet)


def _deployable(fleet: Path, names: Sequence[str]) -> FleetPlan:
    """Return the plan; raise FleetFaults for what the programs of the stacks would refuse."""
    plan = folder_plan(fleet)
    for part in parts(plan):
        if not names or part in names:
            load_fleet(fleet, load_catalog(), part=part)
    return plan


def _open(fleet: Path, plan: FleetPlan, names: Sequence[str], action: Action) -> Session:
    """Return the session. Raises InputError for credentials of another account, and if a killed run left operations."""
    account = open_account(plan)
    engine = open_engine(fleet.absolute().parent)
    states = engine.states(plan.name)
    chosen = chosen_parts(plan, names, states)
    order = layout_order(deployed_layout(states, plan.home.name), layout(plan) if action is Action.UP else None)
    deployed = {part for part, state in states.items() if state.deletable}
    steps = (
        tuple(
            (stack_name(plan, part), Operation(step.action))
            for part in step.parts
            if part in chosen and (step.action is Action.UP or part in deployed)
        )
        for step in order
    )
    require_complete(plan, {part: state for part, state in states.items() if part in chosen})
    return Session(plan, account, engine, states, tuple(step for step in steps if step))


def require_complete(plan: FleetPlan, states: Mapping[str, StackState]) -> None:
    """Raise InputError if a killed run left operations behind in the state of a part."""
    for part, state in states.items():
        if pending := state.pending:
            raise InputError(
                f"a killed run of {stack_name(plan, part)} left operations with unknown results: {', '.join(pending)}",
                fix="run `bedplate recover`",
            )


def _require_recorded(fleet: Path, plan: FleetPlan) -> None:
    """Raise InputError if the lock is incomplete."""
    # Slow: it imports the SDK.
    from stacks.program import require_image_ids, require_recorded

    require_recorded(plan, fleet)
    require_image_ids(plan, load_catalog(), fleet)


def _deploy(session: Session, totals: Mapping[Task, int]) -> tuple[Progress, ...]:
    deleted = {(stack, Operation.DESTROY): len(resources) for stack, resources in _deleted(session).items()}
    return watched(Deployment(session.engine, session.steps, {**totals, **deleted}))


def _again(command: str, fleet: Path, names: Sequence[str] | None) -> str:
    return " ".join(("bedplate", command, str(fleet), *(f"--stack {name}" for name in names or ())))


def _deleted(session: Session) -> dict[str, tuple[Resource, ...]]:
    """Return what is deleted with each stack that is destroyed."""
    destroyed = session.parts(Operation.DESTROY)
    return {stack_name(session.plan, part): session.states[part].deletable for part in destroyed}


def _kept_lines(plan: FleetPlan, states: Mapping[str, StackState]) -> Iterator[str]:
    kept = {stack_name(plan, part): state.kept for part, state in states.items() if state.kept}
    return kept_lines(kept, kept_price(chain.from_iterable(kept.values()), load_catalog()))


def _missing_roles(session: Session) -> dict[str, str]:
    """Return the missing service-linked roles and their services; none, with a warning, if IAM does not answer."""
    roles = service_roles(session.plan)
    try:
        missing = missing_roles(session.account, session.plan.home.name, roles)
    except BedplateError as error:
        notify([f"warning: cannot check service-linked roles: {error.what}"])
        return {}
    return {role: roles[role] for role in missing}


def _warn_of_quotas(session: Session) -> None:
    needs = quota_needs(session.plan, load_catalog())
    answers = read_quotas(session.account, needs)
    notify(
        quota_warning_lines(
            needs, {key: value for by_code in answers.successes.values() for key, value in by_code.items()}
        )
    )
    notify(f"warning: quotas unknown: {line}" for line in failure_lines(answers.failures))


def _recorded(fleet: Path, session: Session, *, yes: bool) -> FleetPlan:
    """Return the plan; record its addresses and images in the lock after a confirmation, if any is missing."""
    plan = session.plan
    missing = (*plan.new_blocks, *plan.new_people)
    images = unrecorded_images(plan, load_catalog())
    if not missing and not images:
        return plan
    if missing:
        notify([f"fleet.lock lacks {counted(len(plan.new_blocks), 'block')} and {len(plan.new_people)} user ids"])
        confirm("record them?", yes=yes)
        record_plan(lock_path(fleet), load_fleet(fleet, load_catalog()).fleet, load_catalog())
    if images:
        record_images(lock_path(fleet), plan.name, newest_images(session.account, images))
        notify([f"recorded {counted(len(images), 'image')} in fleet.lock"])
    plan = plan_loaded(load_fleet(fleet, load_catalog()))
    _require_recorded(fleet, plan)
    return plan


def with_authorities(fleet: Path, plan: FleetPlan) -> FleetPlan:
    """Return the plan; make the cluster's authorities first: a stack publishes the keys of its tokens."""
    if not plan.control_plane or plan.record.authority:
        return plan
    from bedplate.cli.kube_session import locked, make_authorities  # slow

    with locked(fleet):
        make_authorities(fleet, plan, None)
        record_etcd(lock_path(fleet), plan.name, FORMING)
    return plan_of(fleet)


def _ensure_backend(plan: FleetPlan, fleet: Path, *, yes: bool) -> None:
    # Slow: it imports boto3.
    from bedplate.cli.account import ensure_backend

    ensure_backend(plan, fleet.absolute().parent, lambda question: confirm(question, yes=yes))


def _preview(session: Session) -> tuple[Progress, ...]:
    """Return the previews; those that wait for outputs of other stacks have failed for no error."""
    new = session.new_parts()
    existing = [part for part in session.parts(Operation.UP) if part not in new]
    readable = [part for part in existing if not {*parts_read(session.plan, part)} & {*new}]
    states = watched(Deployment(session.engine, (session.tasks(readable, Operation.PREVIEW),)))
    if session.engine.command.is_interrupted:
        notify(["interrupted: nothing was changed"])
        raise KeyboardInterrupt
    changing = {state.stack for state in states if state.steps or state.status is Status.FAILED}
    previews = {state.stack: state for state in states if not state.waits_for(changing)}
    return tuple(
        previews.get(stack, Progress(stack, operation, Status.LATER))
        for stack, operation in session.tasks(existing, Operation.PREVIEW)
    )


def _show_preview(session: Session, states: Sequence[Progress]) -> None:
    """Show the changes of each stack, what is deleted, and the price."""
    _show_red(change_lines(states))
    show(f"{stack:<24} new" for stack, _ in session.tasks(session.new_parts(), Operation.UP))
    _show_red(chain.from_iterable(removal_lines(stack, resources) for stack, resources in _deleted(session).items()))
    parts_before = (*session.parts(Operation.UP), *session.parts(Operation.DESTROY))
    before = recorded_price(session.states[part] for part in {*parts_before} & session.states.keys() - {SHARED, LINKS})
    prices = bill(session.plan, load_catalog()).regions
    show(price_lines(before, sum(prices[part].min for part in session.parts(Operation.UP) if part in prices)))


def _show_red(lines: Iterable[str]) -> None:
    """Show lines, with replacements and deletions in red on a terminal."""
    if not sys.stdout.isatty():
        show(lines)
        return
    console = Console(file=cast("IO[str]", SafeStream(sys.stdout)))
    for line in lines:
        text = Text(line)
        text.highlight_regex(DESTRUCTIVE, "red")
        console.print(text, soft_wrap=True)


def watched(deployment: Deployment) -> tuple[Progress, ...]:
    """Run a deployment and show its progress; return the results."""
    with _table(deployment) as watch:
        return deployment.run(watch)


@contextmanager
def _table(deployment: Deployment) -> Iterator[Watch]:
    """Show a live table on a terminal; elsewhere one line for each change of a status."""
    if is_terminal():
        console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def draw(states: Sequence[Progress]) -> None:
                width = shutil.get_terminal_size().columns
                stopping = [_STOPPING] if deployment.is_interrupted else []
                live.update(Text("\n".join((*progress_lines(states, width), *stopping))), refresh=True)

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


def exit_status(states: Sequence[Progress]) -> int:
    """Print the errors; return the exit status, that of the error if nothing was changed."""
    notify(cause_lines(states))
    if defects := [cause.log for state in states for cause in state.causes if cause.log]:
        with NamedTemporaryFile("w", prefix="bedplate-", suffix=".log", delete=False) as log:
            log.write("\n".join(defects))
        notify([f"  fix  report it, with the traceback in {log.name}"])
    codes = {state.exit_code for state in states if state.status is Status.FAILED}
    if not codes and all(state.status in (Status.DONE, Status.LATER) for state in states):
        return 0
    return PartialError.exit_code if len(codes) != 1 or any(state.steps for state in states) else codes.pop()


def finish(states: Sequence[Progress], command: str) -> int:
    """Print the result of each stack and the command that continues; return the exit status."""
    show(progress_lines(states, _LOG_WIDTH))
    status = exit_status(states)
    if status:
        notify([f"  fix  correct the cause, then run `{command}` again: it continues"])
    return status
