"""Machines get their roles over SSH: which are selected, the applies and upgrades of them, and Ctrl-C meanwhile."""

import os
import socket
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.errors import InputError, nearest_fix
from bedplate.files import login_name
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
from bedplate.nodes.audit import roles_checked
from bedplate.nodes.bootstrap import PROGRAM
from bedplate.nodes.ssh import NodeLocation, SshTargets, check_groups, nodes_by_name, nodes_of_sites, unique_nodes
from bedplate.nodes.upgrade import Upgrades
from bedplate.operate import Operator, Result
from bedplate.operate.fleet import plan_of
from bedplate.operate.login import running_machines, ssh_targets
from bedplate.operate.site_folder import push_folder
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import Platform, permanent_nodes
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
    nodes = [
        *nodes_by_name(plan, selection.names, load_catalog()),
        *nodes_of_sites(plan, selection.sites),
        *(permanent_nodes(plan) if selection.every else ()),
    ]
    running = tuple(running_machines(plan, selection.groups)) if selection.groups else ()
    if selection.groups and not running:
        operator.notify([f"note: no running machine in {', '.join(selection.groups)}"])
    return (*(NodeLocation(node) for node in unique_nodes(nodes)), *running)


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
    with operator.applies([*results]) as report:
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

    with operator.applies([*results]) as report, ThreadPoolExecutor(at_once) as pool:
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
