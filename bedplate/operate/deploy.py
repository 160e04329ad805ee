"""Pulumi's engine runs on the stacks of the fleet: the backend of their state, `preview`, `up` and `destroy`."""

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile

from bedplate.account.backend import (
    StateStore,
    check_volume_keys,
    create_role,
    missing_roles,
    prepare_store,
    service_roles,
)
from bedplate.account.client import AwsClient, failure_lines
from bedplate.account.facts import newest_images, read_quotas
from bedplate.deploy.engine import Engine, open_engine
from bedplate.deploy.progress import STOPPED, Operation, Progress, Status
from bedplate.deploy.run import Deployment, Task
from bedplate.deploy.state import Resource, StackState, deployed_layout, kept_price, recorded_price
from bedplate.errors import BedplateError, InputError, MachineError, PartialError
from bedplate.files import os_errors_as_machine_errors
from bedplate.folder.files import FLEET_FILE, PROJECT_FILE, backend_url, file_url, record_backend, secrets_provider
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import lock_path, record_etcd, record_images, record_plan
from bedplate.operate import Operator, Result, machines, open_account, plan_loaded, plan_of
from bedplate.operate.bundle import deliver_to_new_region
from bedplate.operate.control_plane import locked, make_authorities
from bedplate.operate.images import all_images
from bedplate.operate.terminations import Termination, confirm, find_terminations
from bedplate.plan import FleetPlan, bill
from bedplate.plan.cost import quota_needs
from bedplate.plan.planner import unrecorded_images
from bedplate.plan.record import FORMING
from bedplate.plan.stacks import (
    FLEET_TEXT,
    LINKS,
    SHARED,
    Action,
    bundle_region,
    chosen_parts,
    layout,
    layout_order,
    parts,
    parts_read,
    stack_name,
)
from bedplate.report import deploy as report
from bedplate.report.columns import counted
from bedplate.report.cost import unmet_needs
from bedplate.report.diagnostics import tally
from bedplate.report.plan import unrecorded
from bedplate.report.updates import diff_lines
from bedplate.rules import Level
from bedplate.update import consequences
from stacks.program import require_image_ids, require_recorded

_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


def init_backend(operator: Operator, file: Path | None) -> Result:
    """Prepare backend and stacks, with the state in this folder, or in a bucket; return the changes."""
    changes = []
    for change in _prepare(plan_of(operator), operator.fleet.absolute().parent, file):
        operator.show([change])
        changes.append(change)
    operator.show(["commit Pulumi.yaml and the files Pulumi.<stack>.yaml" if changes else "nothing to do"])
    return Result((), {"changes": changes})


def ensure_backend(operator: Operator, plan: FleetPlan) -> None:
    """Create the backend of a fleet folder after a confirmation, if Pulumi has none."""
    folder = operator.fleet.absolute().parent
    if backend_url(folder) or open_engine(folder).has_login():
        return
    store = _store(plan)
    what = f"create the bucket {store.bucket} and the KMS key {store.alias}"
    operator.confirm(f"there is no backend for Pulumi's state: {what}?")
    for change in _prepare(plan, folder, None):
        operator.show([change])


def _store(plan: FleetPlan) -> StateStore:
    return StateStore(plan.name, plan.owner, plan.account, plan.home.name)


def _prepare(plan: FleetPlan, folder: Path, file: Path | None) -> Iterator[str]:
    """Prepare backend and stacks; yield each change."""
    engine, store = open_engine(folder), _store(plan)
    url = file_url(folder, file) if file else store.url
    configured = backend_url(folder)
    if file and configured not in ("", url):
        raise InputError(
            f"the state is in {configured} already",
            fix="omit --file; docs/state.md of bedplate describes how to move a state",
        )
    if not configured:
        _check_unused(engine, plan.name)
    if configured in ("", url):
        yield from _prepare_folder(file) if file else prepare_store(open_account(plan), store)
    if not configured:
        record_backend(folder, url)
        yield f"wrote the backend {url} to {PROJECT_FILE}"
    default = store.secrets_provider if backend_url(folder) == store.url else ""
    provider = secrets_provider(folder, plan.name) or default
    yield from engine.prepare_stacks(plan.name, (stack_name(plan, part) for part in parts(plan)), provider)


def _check_unused(engine: Engine, fleet: str) -> None:
    """Raise InputError if the fleet is deployed in the backend of `pulumi login`: `up` would create it again."""
    if engine.has_login() and engine.is_deployed(fleet):
        raise InputError(
            f"the state of {fleet} is in the backend of your `pulumi login`",
            fix="write its URL (`pulumi whoami --verbose`) to Pulumi.yaml as `backend: {url: URL}`, then run it again",
        )


def _prepare_folder(folder: Path) -> Iterator[str]:
    if not any(map(os.environ.get, _PASSPHRASES)):
        raise MachineError(
            "the passphrase for the secrets of the state is missing",
            fix=f"set {_PASSPHRASES[0]}, or {_PASSPHRASES[1]} to a file that holds it",
        )
    if not folder.is_dir():
        with os_errors_as_machine_errors(folder):
            folder.mkdir(mode=0o700, parents=True)
        yield f"created the folder {folder}"


@dataclass(frozen=True, slots=True)
class Session:
    """The engine, what is deployed by part, and the operations of a command in their order."""

    plan: FleetPlan
    account: AwsClient
    engine: Engine
    states: Mapping[str, StackState]
    steps: tuple[tuple[Task, ...], ...]
    _one_build: threading.Lock = field(default_factory=threading.Lock)

    def deliver(self, task: Task) -> None:
        """Give the region of a deployed stack its bundle, if it has none yet."""
        stack, operation = task
        if operation is Operation.UP and (region := bundle_region(self.plan, stack)):
            with self._one_build:
                deliver_to_new_region(self.plan, self.account, region)

    def parts(self, operation: Operation) -> tuple[str, ...]:
        """Return the parts whose stacks have the operation, in order."""
        prefix = stack_name(self.plan, "")
        return tuple(name.removeprefix(prefix) for step in self.steps for name, what in step if what is operation)

    def new_parts(self) -> tuple[str, ...]:
        """Return the parts to deploy whose stacks have no resources, or will have none by then."""
        empty = {part for part, state in self.states.items() if state.is_empty}
        existing = self.states.keys() - empty - {*self.parts(Operation.DESTROY)}
        return tuple(part for part in self.parts(Operation.UP) if part not in existing)

    def early_lines(self) -> Iterator[str]:
        """Yield a line for each pool whose group is made outside its hours."""
        groups = {name for state in self.states.values() for name in state.scaling_groups.values()}
        chosen, fleet = self.parts(Operation.UP), self.plan.name
        pools = (pool for pool in self.plan.pools if f"{fleet}-{pool.name}" not in groups and pool.region in chosen)
        return report.early_lines(pools, datetime.now(UTC))

    def tasks(self, chosen: Iterable[str], operation: Operation) -> tuple[Task, ...]:
        """Return an operation on the stacks of parts."""
        return tuple((stack_name(self.plan, part), operation) for part in chosen)


@dataclass(frozen=True, slots=True)
class Preview:
    """What `up` would do: the changes of deployed stacks, the new stacks, and what is deleted and ended with others."""

    session: Session
    states: tuple[Progress, ...]
    terminations: tuple[Termination, ...]

    @property
    def document(self) -> dict[str, object]:
        """The preview as JSON."""
        changes = {state.stack: None if state.status is Status.LATER else dict(state.changes) for state in self.states}
        new = [stack for stack, _ in self.session.tasks(self.session.new_parts(), Operation.UP)]
        deleted = {stack: len(resources) for stack, resources in _deleted(self.session).items()}
        ends, early = [asdict(end) for end in self.terminations], list(self.session.early_lines())
        return {"stacks": changes, "new": new, "deleted": deleted, "ends": ends, "outside_hours": early}

    def result(self, status: int = 0, states: Iterable[Progress] = (), **more: object) -> Result:
        """Return the preview with the results of a deployment."""
        return Result((), self.document | {"results": report.results_document(states)} | more, status)

    def show(self, operator: Operator) -> None:
        """Report the machines that end, the changes of each stack, what is deleted, and the price."""
        session = self.session
        operator.show_changes(end.line for end in self.terminations)
        operator.show(_edit_lines(operator, session))
        if is_first := not any(state.deletable for state in session.states.values()):
            operator.show(report.first_lines(session.plan))
        operator.show_changes(report.change_lines(self.states))
        operator.show(f"{stack:<24} new" for stack, _ in session.tasks(session.new_parts(), Operation.UP))
        operator.show_changes(_removals(session))
        operator.show(session.early_lines())
        deployed = session.parts(Operation.UP)
        parts_before = {*deployed, *session.parts(Operation.DESTROY)} & session.states.keys() - {SHARED, LINKS}
        prices = bill(session.plan, session.plan.catalog).regions
        after = sum(prices[part].min for part in deployed if part in prices)
        operator.show(
            report.price_lines(recorded_price(session.states[part] for part in parts_before), after, is_first=is_first)
        )


def preview(operator: Operator, names: Sequence[str]) -> Preview:
    """Return what `up` would do, to these stacks or all. A stack is previewed once it exists."""
    session = _open(operator, _deployable(operator, names), names, Action.UP)
    if missing := unrecorded(session.plan):
        operator.notify([f"not recorded yet: {', '.join(missing)}; `up` records them"])
    previews = _preview(operator, session)
    return Preview(session, previews, _terminations(session, previews))


def up(operator: Operator, names: Sequence[str], *, with_machines: bool) -> Result:
    """Deploy these stacks, or all; then make machines ready if all were deployed."""
    deployed = _deploy_stacks(operator, names)
    if deployed.status or names or not with_machines:
        return deployed
    ready = machines.ready_machines(operator, again("up", operator))
    return replace(ready, document={**deployed.document, "machines": ready.document})


def _deploy_stacks(operator: Operator, names: Sequence[str]) -> Result:
    plan = _deployable(operator, names)
    ensure_backend(operator, plan)
    session = _open(operator, plan, names, Action.UP)
    session = replace(session, plan=with_authorities(operator, _recorded(operator, session)))
    previews = _preview(operator, session)
    preview = Preview(session, previews, ())
    if status := exit_status(operator, previews):
        return preview.result(status)
    is_changed = any(state.steps or state.status is Status.LATER for state in previews)
    # An edit without resources is only recorded with the stacks.
    is_changed = is_changed or any(_edit_lines(operator, session))
    if not (is_changed or session.new_parts() or session.parts(Operation.DESTROY)):
        operator.show(["no change"])
        # A run that ended between the stack and its bundle has left machines that wait for it.
        for task in chain.from_iterable(session.steps):
            session.deliver(task)
        return preview.result()
    confirm_quotas(operator, session.plan, session.account)
    check_volume_keys(session.account, session.plan)
    roles = _missing_roles(operator, session)
    preview = replace(preview, terminations=_terminations(session, previews))
    preview.show(operator)
    operator.show(f"{role} will be created in the account" for role in roles)
    confirm(operator, "deploy?", preview.terminations, tuple(report.detail_lines(previews)))
    for role, service in roles.items():
        create_role(session.account, session.plan.home.name, role, service)
    states = _deploy(operator, session, {(state.stack, Operation.UP): len(state.steps) for state in previews})
    return preview.result(finish(operator, session.engine, states, again("up", operator, names)), states)


def destroy(operator: Operator, names: Sequence[str]) -> Result:
    """Delete what was deployed, except for data, of these stacks or all; report what is kept."""
    session = _open(operator, folder_plan(operator), names, Action.DESTROY)
    preview = Preview(session, (), _terminations(session, ()))
    states: tuple[Progress, ...] = ()
    if _deleted(session):
        operator.show_changes(end.line for end in preview.terminations)
        operator.show_changes(_removals(session))
        confirm(operator, "destroy?", preview.terminations)
        states = _deploy(operator, session, {})
        if status := finish(operator, session.engine, states, again("destroy", operator, names)):
            return preview.result(status, states)
    else:
        operator.show(["nothing is deployed"])
    return preview.result(0, states, kept=_kept(operator, session))


def folder_plan(operator: Operator) -> FleetPlan:
    """Return the plan of the folder's fleet file. Raises InputError for a file that Pulumi's program ignores."""
    fleet = operator.fleet
    if fleet.name != FLEET_FILE and fleet.exists():
        raise InputError(f"a deployment reads {FLEET_FILE} only", where=str(fleet), fix=f"rename it to {FLEET_FILE}")
    return plan_of(operator)


def _deployable(operator: Operator, names: Sequence[str]) -> FleetPlan:
    """Return the plan; raise FleetFaults for what the programs of the stacks would refuse."""
    plan = folder_plan(operator)
    faults = load_fleet(operator.fleet).faults
    if warnings := tally(fault.level for fault in faults if fault.level is Level.WARNING):
        operator.notify([f"{warnings} in {operator.fleet}: `bedplate check` shows them"])
    for part in parts(plan):
        if not names or part in names:
            load_fleet(operator.fleet, part=part)
    return plan


def _open(operator: Operator, plan: FleetPlan, names: Sequence[str], action: Action) -> Session:
    """Return the session. Raises InputError for credentials of another account, and if a killed run left operations."""
    account = open_account(plan)
    engine = open_engine(operator.fleet.absolute().parent)
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


def _require_recorded(operator: Operator, plan: FleetPlan) -> None:
    """Raise InputError if the lock is incomplete."""
    require_recorded(plan, operator.fleet)
    require_image_ids(plan, plan.catalog, operator.fleet)


def _deploy(operator: Operator, session: Session, totals: Mapping[Task, int]) -> tuple[Progress, ...]:
    deleted = {(stack, Operation.DESTROY): len(resources) for stack, resources in _deleted(session).items()}
    return watched(operator, Deployment(session.engine, session.steps, {**totals, **deleted}, session.deliver))


def deployed_text(operator: Operator) -> str:
    """Return the fleet file of the last deployment. Raises InputError if no stack has recorded it."""
    plan = plan_of(operator)
    if text := _text_of(open_engine(operator.fleet.absolute().parent).states(plan.name)):
        return text
    raise InputError("no deployment has recorded its fleet file", fix="run `bedplate up`, which records it")


def _text_of(states: Mapping[str, StackState], current: str = "") -> str:
    """Return the fleet file of the last deployment, another than `current`; empty if none is recorded."""
    # After a failure the first stacks are newer.
    order = sorted(states, key=lambda part: (part != LINKS, part == SHARED))
    texts = (str(states[part].outputs.get(FLEET_TEXT, "")) for part in order if states[part].deletable)
    return next((text for text in texts if text not in ("", current)), "")


def _edit_lines(operator: Operator, session: Session) -> Iterator[str]:
    """Yield the edits of the fleet file since the last deployment of the parts of a command."""
    chosen = {*session.parts(Operation.UP), *session.parts(Operation.DESTROY)}
    states = {part: state for part, state in session.states.items() if part in chosen}
    text = _text_of(states, operator.fleet.read_text(encoding="utf-8"))
    if not text:
        return
    try:
        before = load_fleet(operator.fleet, text=text).fleet
    except FleetFaults:
        yield "the fleet file of the last deployment is invalid by now: its edits are unknown"
        return
    if edits := consequences(before, load_fleet(operator.fleet).fleet):
        yield from ("edits since the last deployment:", *diff_lines(edits), "")


def again(command: str, operator: Operator, names: Sequence[str] = ()) -> str:
    """Return the command that continues."""
    return " ".join(("bedplate", command, str(operator.fleet), *(f"--stack {name}" for name in names)))


def _deleted(session: Session) -> dict[str, tuple[Resource, ...]]:
    """Return what is deleted with each stack that is destroyed."""
    destroyed = session.parts(Operation.DESTROY)
    return {stack_name(session.plan, part): session.states[part].deletable for part in destroyed}


def _terminations(session: Session, previews: Sequence[Progress]) -> tuple[Termination, ...]:
    """Return the running machines that a deployment ends; those of a stack without a preview too."""
    kept = defaultdict[str, dict[str, int]](dict)
    for part in session.parts(Operation.DESTROY):
        kept[part].update(dict.fromkeys(session.states[part].scaling_groups.values(), 0))
    for state in previews:
        part = state.stack.removeprefix(stack_name(session.plan, ""))
        sizes = {change.urn: change.real for change in state.differences if change.key == "maxSize"}
        for urn, name in session.states[part].scaling_groups.items():
            if state.status is not Status.DONE or state.steps.get(urn) in ("delete", "replace"):
                kept[part][name] = 0
            elif urn in sizes:
                kept[part][name] = int(sizes[urn] or 0)
    return find_terminations(session.account, session.plan, {part: groups for part, groups in kept.items() if groups})


def _removals(session: Session) -> Iterator[str]:
    return chain.from_iterable(report.removal_lines(stack, resources) for stack, resources in _deleted(session).items())


def _kept(operator: Operator, session: Session) -> dict[str, object]:
    """Report what is kept and its price; return it with the GiB of images, None if AWS has not told them."""
    plan, states = session.plan, session.engine.states(session.plan.name)
    kept = {stack_name(plan, part): state.kept for part, state in states.items() if state.kept}
    price = kept_price(chain.from_iterable(kept.values()), plan.catalog)
    images = all_images(session.account, plan)
    gib = None if images.failures else sum(image.gib for found in images.successes.values() for image in found)
    operator.show(report.kept_lines(kept, price, gib, plan.catalog.rates))
    return {"resources": {stack: len(kept[stack]) for stack in kept}, "hourly": price, "images_gib": gib}


def _missing_roles(operator: Operator, session: Session) -> dict[str, str]:
    """Return the missing service-linked roles and their services; none, with a warning, if IAM does not answer."""
    roles = service_roles(session.plan)
    try:
        missing = missing_roles(session.account, session.plan.home.name, roles)
    except BedplateError as error:
        operator.notify([f"warning: cannot check service-linked roles: {error.what}"])
        return {}
    return {role: roles[role] for role in missing}


def confirm_quotas(operator: Operator, plan: FleetPlan, account: AwsClient) -> None:
    """Report quotas that are too small, and ask before a deployment whose machines cannot start."""
    needs = quota_needs(plan, plan.catalog)
    answers = read_quotas(account, needs)
    granted = {key: value for by_code in answers.successes.values() for key, value in by_code.items()}
    operator.notify(report.quota_warning_lines(needs, granted))
    operator.notify(f"warning: quotas unknown: {line}" for line in failure_lines(answers.failures))
    if names := {f"{need.quota.name} in {need.region}" for need in unmet_needs(needs, granted)}:
        operator.confirm(f"too small for the minimum: {', '.join(sorted(names))}: machines cannot start; deploy?")


def _recorded(operator: Operator, session: Session) -> FleetPlan:
    """Return the plan; record its addresses and images in the lock after a confirmation, if any is missing."""
    plan, lock = session.plan, lock_path(operator.fleet)
    missing = (*plan.new_blocks, *plan.new_people)
    images = unrecorded_images(plan, plan.catalog)
    if not missing and not images:
        return plan
    if missing:
        operator.notify([f"not recorded yet: {', '.join(unrecorded(plan))}"])
        operator.confirm("record them?")
        record_plan(lock, load_fleet(operator.fleet).fleet, plan.catalog)
    if images:
        record_images(lock, plan.name, newest_images(session.account, images))
        operator.notify([f"recorded {counted(len(images), 'image')} in fleet.lock"])
    plan = plan_loaded(load_fleet(operator.fleet))
    _require_recorded(operator, plan)
    return plan


def with_authorities(operator: Operator, plan: FleetPlan) -> FleetPlan:
    """Return the plan; make the cluster's authorities first: a stack publishes the keys of its tokens."""
    if not plan.control_plane or plan.record.authority:
        return plan
    with locked(operator):
        make_authorities(operator, plan)
        record_etcd(lock_path(operator.fleet), plan.name, FORMING)
    return plan_of(operator)


def _preview(operator: Operator, session: Session) -> tuple[Progress, ...]:
    """Return the previews; those that wait for outputs of other stacks have failed for no error."""
    new = session.new_parts()
    existing = [part for part in session.parts(Operation.UP) if part not in new]
    readable = [part for part in existing if not {*parts_read(session.plan, part)} & {*new}]
    states = watched(operator, Deployment(session.engine, (session.tasks(readable, Operation.PREVIEW),)))
    if session.engine.command.is_interrupted:
        operator.notify(["stopped by you: nothing was changed"])
        raise KeyboardInterrupt
    changing = {state.stack for state in states if state.steps or state.status is Status.FAILED}
    previews = {state.stack: state for state in states if not state.waits_for(changing)}
    return tuple(
        previews.get(stack, Progress(stack, operation, Status.LATER))
        for stack, operation in session.tasks(existing, Operation.PREVIEW)
    )


def watched(operator: Operator, deployment: Deployment) -> tuple[Progress, ...]:
    """Run a deployment and report its progress; return the results."""
    with operator.views.stacks(deployment) as watch:
        return deployment.run(watch)


def exit_status(operator: Operator, states: Sequence[Progress]) -> int:
    """Report the errors; return the exit status, that of the error if nothing was changed."""
    operator.notify(report.cause_lines(states))
    if defects := [cause.log for state in states for cause in state.causes if cause.log]:
        with NamedTemporaryFile("w", prefix="bedplate-", suffix=".log", delete=False) as log:
            log.write("\n".join(defects))
        operator.notify([f"  fix  report it, with the traceback in {log.name}"])
    codes = {state.exit_code for state in states if state.status is Status.FAILED}
    if not codes and all(state.status in (Status.DONE, Status.LATER) for state in states):
        return 0
    return PartialError.exit_code if len(codes) != 1 or any(state.steps for state in states) else codes.pop()


def finish(operator: Operator, engine: Engine, states: Sequence[Progress], command: str) -> int:
    """Report the result of each stack and the commands that continue; return the exit status."""
    operator.show(report.progress_lines(states, report.LOG_WIDTH))
    status = exit_status(operator, states)
    if status:
        failed = [state for state in states if state.status is Status.FAILED]
        was_stopped = all(STOPPED in state.causes for state in failed)
        # After Ctrl-C this engine answers no more questions.
        was_killed = not engine.command.is_interrupted and any(_is_incomplete(engine, state.stack) for state in failed)
        first = "run `bedplate recover`" if was_killed else "" if was_stopped else "correct the cause"
        advice = f"{first}, then run `{command}` again" if first else f"run `{command}` again"
        operator.notify(["stopped by you"] * was_stopped + [f"  fix  {advice}: it continues"])
    return status


def _is_incomplete(engine: Engine, stack: str) -> bool:
    """Return whether a killed engine left operations behind, or its state cannot be read."""
    try:
        return bool(StackState(engine.deployment(stack)).pending)
    except BedplateError:
        return True
