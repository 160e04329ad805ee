"""Machines get their roles over SSH, and are checked against the plan: applies, upgrades and audits."""

import os
import socket
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from bedplate.errors import InputError, PartialError, ViolationError, nearest_fix
from bedplate.files import login_name, try_out, write_together
from bedplate.load.source import today
from bedplate.lock import check_plan_recorded
from bedplate.nodes.apply import (
    ApplyProcess,
    ApplyRequest,
    Event,
    NodeError,
    NodeResult,
    Target,
    error_event,
    exit_status,
    run_apply,
)
from bedplate.nodes.audit import AuditRequest, Findings, RuleOutcome, roles_checked, run_audit
from bedplate.nodes.bootstrap import PROGRAM
from bedplate.nodes.ssh import (
    Login,
    NodeLocation,
    SshTargets,
    check_groups,
    nodes_by_name,
    nodes_of_sites,
    unique_nodes,
)
from bedplate.nodes.upgrade import Upgrades
from bedplate.operate import Operator, Result, plan_of
from bedplate.operate.login import is_of_instance, locate, running_machines, ssh_targets
from bedplate.operate.site_folder import push_folder
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import Platform, permanent_nodes
from bedplate.report import compliance
from bedplate.report.nodes import apply_document, apply_lines

INTERRUPTED = 130
"""The exit status that a shell reports for a program killed by SIGINT: 128 + 2."""
_STOPPING_APPLY = "stopping after the current operation of each machine; press Ctrl-C again to disconnect now"
_STOPPING_UPGRADE = "stopping: machines that are being changed finish their changes, and are not rebooted"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which machines an operator has selected: by name, all of groups or sites, or `every` permanent one."""

    names: Sequence[str] = ()
    groups: Sequence[str] = ()
    sites: Sequence[str] = ()
    every: bool = False


def select_machines(operator: Operator, plan: FleetPlan, selection: Selection) -> tuple[NodeLocation, ...]:
    """Return the selected machines, without duplicates. Raises InputError for an unknown name, or if none is given."""
    check_groups(plan, selection.groups)
    if not (selection.names or selection.groups or selection.sites or selection.every):
        fix = "name machines, or pass --site, --group or --all; `bedplate node list` shows the names"
        raise InputError("no machine selected", fix=fix)
    planned = [name for name in selection.names if not is_of_instance(plan, name)]
    instances = [locate(plan, name) for name in selection.names if name not in planned]
    nodes = [
        *nodes_by_name(plan, planned, plan.catalog),
        *nodes_of_sites(plan, selection.sites),
        *(permanent_nodes(plan) if selection.every else ()),
    ]
    running = tuple(running_machines(plan, selection.groups)) if selection.groups else ()
    if selection.groups and not running:
        operator.notify([f"note: no running machine in {', '.join(selection.groups)}"])
    return (*(NodeLocation(node) for node in unique_nodes(nodes)), *instances, *running)


def select_roles(roles: Collection[str], machines: Sequence[NodeLocation]) -> frozenset[str] | None:
    """Return the selected roles, or None for all. Raises InputError for a role that none of the machines has."""
    if not roles:
        return None
    # Slow: it imports every role.
    from roles.catalog import names_of

    # A group without running machines has no roles to compare with: any role is valid.
    available = sorted({name for machine in machines for name in names_of(machine.node)}) or roles_checked()
    for role in roles:
        if role not in available:
            raise InputError(f"none of these machines has the role {role}", fix=nearest_fix(role, available))
    return frozenset(roles)


@dataclass(slots=True)
class Done:
    """The outcomes, in the order of the machines."""

    outcomes: tuple[NodeResult, ...]
    interrupted: bool = False

    def result(self, *, check: bool = False) -> Result:
        """Return the lines, the document and the exit status."""
        status = INTERRUPTED if self.interrupted else exit_status(self.outcomes, check=check)
        return Result(apply_lines(self.outcomes, check=check), apply_document(self.outcomes), status)


def apply(operator: Operator, selection: Selection, roles: Sequence[str], *, check: bool) -> Result:
    """Apply these roles, or all, to the selected machines; `check` only shows what would change."""
    plan = plan_of(operator)
    machines = select_machines(operator, plan, selection)
    return apply_machines(operator, plan, machines, select_roles(roles, machines), check=check).result(check=check)


def apply_machines(
    operator: Operator,
    plan: FleetPlan,
    machines: Sequence[NodeLocation],
    roles: frozenset[str] | None = None,
    *,
    check: bool = False,
) -> Done:
    """Apply these roles, or all, to machines. Raises InputError for an unrecorded plan."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, operator)
        if not check:
            check_plan_recorded(plan, operator.fleet)
        return apply_order(operator, ApplyRequest(ways.targets, _applicant(), check=check, only=roles), ways.missing)


def _applicant() -> str:
    """Return who locks the machines, for the message to other operators."""
    return f"{login_name()} on {socket.gethostname()}, process {os.getpid()}"


def apply_order(operator: Operator, order: ApplyRequest, unreachable: Sequence[Event]) -> Done:
    """Carry out the order. `unreachable` are errors of machines that ssh cannot reach."""
    results = _results(SshTargets(order.targets, tuple(unreachable)))
    done = Done(tuple(results.values()))
    with operator.views.applies([*results]) as report:
        take = _taken(results, report)
        for event in unreachable:
            take(event)
        if order.targets:
            with run_apply(order) as engine:
                done.interrupted = _follow(operator, engine, take)
    return done


def _results(ways: SshTargets) -> dict[str, NodeResult]:
    names = [*(event.node for event in ways.missing), *(target.node.name for target in ways.targets)]
    return {name: NodeResult(name) for name in names}


def _taken(results: dict[str, NodeResult], report: Callable[[Event, NodeResult], None]) -> Callable[[Event], None]:
    """Return the function that enters an event in the result of its machine, and reports both."""

    def take(event: Event) -> None:
        results[event.node].take(event)
        report(event, results[event.node])

    return take


def _follow(operator: Operator, engine: ApplyProcess, take: Callable[[Event], None]) -> bool:
    """Take all events, and return whether Ctrl-C was pressed. The first one stops the engine, the second raises."""
    events, interrupted = engine.events(), False
    while True:
        try:
            for event in events:
                take(event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            operator.notify([_STOPPING_APPLY])
            engine.stop()
            events = engine.events()
        else:
            return interrupted


def upgrade(operator: Operator, selection: Selection, at_once: int, mode: str) -> Result:
    """Drain, update and reboot machines; begin no other machine after a failure."""
    plan = plan_of(operator)
    machines = select_machines(operator, plan, selection)
    check_plan_recorded(plan, operator.fleet)
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        return _upgrade_all(operator, ssh_targets(Path(folder), plan, machines, operator), at_once, mode).result()


def _upgrade_all(operator: Operator, ways: SshTargets, at_once: int, mode: str) -> Done:
    results = _results(ways)
    done, has_failed = Done(tuple(results.values())), bool(ways.missing)

    def upgrade_one(target: Target) -> None:
        nonlocal has_failed
        if not has_failed and not done.interrupted:
            has_failed |= not _upgrade_machine(upgrades, target, mode)

    with operator.views.applies([*results]) as report, ThreadPoolExecutor(at_once) as pool:
        take = _taken(results, report)
        upgrades = Upgrades(take)
        for event in ways.missing:
            take(event)
        futures: list[Future[None]] = [pool.submit(upgrade_one, target) for target in ways.targets]
        try:
            wait(futures)
        except KeyboardInterrupt:
            done.interrupted = True
            operator.notify([_STOPPING_UPGRADE])
            upgrades.stop()
    for future in futures:
        future.result()
    return done


def _upgrade_machine(upgrades: Upgrades, target: Target, mode: str) -> bool:
    if target.node.platform is Platform.CLOUD:
        return upgrades.upgrade(target, mode, PROGRAM, "fetch")
    try:
        script = push_folder(target)
    except NodeError as error:
        upgrades.report(error_event(target.node.name, error))
        return False
    return upgrades.upgrade(target, mode, script, "keep_script", "fetch")


@dataclass(frozen=True, slots=True)
class Reports:
    """Files of an audit's findings, as JUnit XML and as HTML; `verbose` lines also have rules that are met."""

    junit: Path | None = None
    html: Path | None = None
    verbose: bool = False


def audit(
    operator: Operator,
    selection: Selection = Selection(),
    roles: Sequence[str] = (),
    reports: Reports = Reports(),
    *,
    is_local: bool = False,
) -> Result:
    """Check the selected machines against the plan, or all permanent ones; with `is_local` this one, without SSH."""
    plan = plan_of(operator)
    is_default = not (selection.names or selection.groups or selection.sites)
    machines = select_machines(operator, plan, replace(selection, every=selection.every or is_default))
    if is_local and len(machines) != 1:
        raise InputError(
            f"--local checks one machine, not {len(machines)}", fix="name the machine you are logged in to"
        )
    chosen_roles = select_roles(roles, machines)
    _check_writable(reports.junit, reports.html)
    findings = audit_machines(operator, plan, machines, chosen_roles, is_local=is_local)
    if not any(node_findings.verdicts or node_findings.unreached for node_findings in findings):
        raise InputError("no rule applies to these machines", fix="leave out --role, or name other machines")
    texts = {reports.junit: compliance.junit_report(findings)} if reports.junit else {}
    if reports.html:
        texts[reports.html] = compliance.compliance_page(plan.name, str(today()), findings).encode()
    write_together(texts)
    lines = compliance.compliance_lines(findings, whole=reports.verbose)
    status = PartialError.exit_code if any(map(compliance.is_partial, findings)) else 0
    if any(node_findings.of(RuleOutcome.FAILED) for node_findings in findings):
        status = ViolationError.exit_code
    return Result(lines, compliance.compliance_document(findings), status)


def _check_writable(*files: Path | None) -> None:
    """Raise for a report that cannot be written, before any machine is checked."""
    for file in filter(None, files):
        folder = file.absolute().parent
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder), fix=f"run `mkdir -p {folder}`")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix=f"name a file, such as {file / 'audit'}")
    try_out(filter(None, files))


def audit_machines(
    operator: Operator,
    plan: FleetPlan,
    machines: Sequence[NodeLocation],
    roles: frozenset[str] | None,
    *,
    is_local: bool = False,
) -> tuple[Findings, ...]:
    """Return the findings of machines, in their order; with `is_local` those of this machine, without SSH."""
    if is_local:
        names = [machine.node.name for machine in machines]
        return audit_nodes(operator, AuditRequest(operator.fleet, only=roles), names)
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, operator)
        config = operator.ssh_config
        # The configuration that ssh_targets writes names the user and the key already.
        login = Login(operator.user, operator.identity) if config else Login()
        pools = {machine.node.name: machine.pool for machine in machines if machine.pool}
        request = AuditRequest(operator.fleet, config or Path(folder) / "ssh_config", login, roles, pools)
        checked = audit_nodes(operator, request, [target.node.name for target in ways.targets])
    findings = {node_findings.node: node_findings for node_findings in checked}
    for event in ways.missing:
        findings[event.node] = Findings(event.node, unreached=f"{event.words}; {event.fix}")
    return tuple(findings[machine.node.name] for machine in machines)


def audit_nodes(operator: Operator, request: AuditRequest, names: Sequence[str]) -> tuple[Findings, ...]:
    """Check machines, report the progress, and return the findings in the order of the names."""
    with operator.views.audits(names) as report:
        return tuple(run_audit(request, names, report))
