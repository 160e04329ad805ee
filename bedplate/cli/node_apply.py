"""The commands that log in to machines: apply configures them, upgrade restarts them, audit checks them.

Below the commands: the selection of machines and roles, and the progress, which is a live table on a terminal, else a
line on stderr for each event.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import plan_of
from bedplate.cli.login import SshOptions, running_machines, ssh_targets
from bedplate.cli.output import (
    DEFAULT_FLEET,
    Every,
    FleetOption,
    Groups,
    Identity,
    Json,
    Names,
    SafeStream,
    Sites,
    SshConfig,
    User,
    is_terminal,
    notify,
    show,
    show_document,
)
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
    Step,
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
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import Platform, permanent_nodes
from bedplate.report.compliance import compliance_document, compliance_lines, compliance_page, is_partial, junit_report
from bedplate.report.compliance import event_line as audit_event_line
from bedplate.report.nodes import apply_document, apply_lines, event_line

INTERRUPTED = 130


def apply(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only apply this role; repeatable.")
    ] = None,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Configure machines as planned."""
    plan = plan_of(fleet)
    machines = select_machines(plan, names or (), group or (), site or (), every=every)
    roles = select_roles(role or (), machines)
    done = apply_machines(plan, machines, SshOptions(fleet, user, identity, ssh_config), roles, check=check)
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=check))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=check)


def apply_machines(
    plan: FleetPlan,
    machines: Sequence[NodeLocation],
    options: SshOptions,
    roles: frozenset[str] | None = None,
    *,
    check: bool = False,
) -> "Done":
    """Apply these roles, or all, to machines, and show the progress. Raises InputError for an unrecorded plan."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, options)
        if not check:
            check_plan_recorded(plan, options.fleet)
        return apply_order(ApplyRequest(ways.targets, _applicant(), check=check, only=roles), ways.missing)


def _applicant() -> str:
    """Return who locks the machines, for the message to other operators."""
    return f"{login_name()} on {socket.gethostname()}, process {os.getpid()}"


def audit(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    local: Annotated[bool, typer.Option("--local", help="NAME is this machine: check it without SSH.")] = False,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only check rules of this role; repeatable.")
    ] = None,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also show rules that are met.")] = False,
    json: Json = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report.")] = None,
) -> int:
    """Check machines against the plan.

    Without names, all permanent machines. The exit status is 3 if a rule is violated, 6 if a machine was not checked.
    """
    plan = plan_of(fleet)
    is_default = not (names or group or site)
    machines = select_machines(plan, names or (), group or (), site or (), every=every or is_default)
    if local and len(machines) != 1:
        raise InputError(
            f"--local checks one machine, not {len(machines)}", fix="name the machine you are logged in to"
        )
    roles = select_roles(role or (), machines)
    _check_writable(junit, html)
    if local:
        findings = audit_nodes(AuditRequest(fleet, only=roles), [machine.node.name for machine in machines])
    else:
        findings = _audit_over_ssh(fleet, plan, machines, roles, SshOptions(fleet, user, identity, ssh_config))
    if not any(node_findings.verdicts or node_findings.unreached for node_findings in findings):
        raise InputError("no rule applies to these machines", fix="leave out --role, or name other machines")
    if json:
        show_document(compliance_document(findings))
    else:
        show(compliance_lines(findings, whole=verbose))
    _write_reports(plan.name, findings, junit, html)
    if any(node_findings.of(RuleOutcome.VIOLATED) for node_findings in findings):
        return ViolationError.exit_code
    return PartialError.exit_code if any(map(is_partial, findings)) else 0


def _audit_over_ssh(
    fleet: Path, plan: FleetPlan, machines: Sequence[NodeLocation], roles: frozenset[str] | None, options: SshOptions
) -> tuple[Findings, ...]:
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, options)
        # The configuration that ssh_targets writes names the user and the key already.
        login = Login(options.user, options.identity) if options.config else Login()
        pools = {machine.node.name: machine.pool for machine in machines if machine.pool}
        order = AuditRequest(fleet, options.config or Path(folder) / "ssh_config", login, roles, pools)
        findings = {
            node_findings.node: node_findings
            for node_findings in audit_nodes(order, [target.node.name for target in ways.targets])
        }
    for event in ways.missing:
        findings[event.node] = Findings(event.node, unreached=f"{event.words}; {event.fix}")
    return tuple(findings[machine.node.name] for machine in machines)


def _check_writable(*files: Path | None) -> None:
    """Raise for a report that cannot be written, before any machine is checked."""
    for file in filter(None, files):
        folder = file.absolute().parent
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder), fix=f"run `mkdir -p {folder}`")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix=f"name a file, such as {file / 'audit'}")
    try_out(filter(None, files))


def _write_reports(fleet: str, findings: Sequence[Findings], junit: Path | None, html: Path | None) -> None:
    texts: dict[Path, bytes] = {}
    if junit:
        texts[junit] = junit_report(findings)
    if html:
        texts[html] = compliance_page(fleet, str(today()), findings).encode()
    write_together(texts)


def select_machines(
    plan: FleetPlan, names: Sequence[str], groups: Sequence[str], sites: Sequence[str], *, every: bool
) -> tuple[NodeLocation, ...]:
    """Return the selected machines, without duplicates. Raises InputError for an unknown name, or if none is given."""
    check_groups(plan, groups)
    if not (names or groups or sites or every):
        fix = "name machines, or pass --site, --group or --all; `bedplate node list` shows the names"
        raise InputError("no machine selected", fix=fix)
    nodes = [
        *nodes_by_name(plan, names, load_catalog()),
        *nodes_of_sites(plan, sites),
        *(permanent_nodes(plan) if every else ()),
    ]
    running = tuple(running_machines(plan, groups)) if groups else ()
    if groups and not running:
        notify([f"note: no running machine in {', '.join(groups)}"])
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


DONE = "done"
STOPPING = "stopping after the current operation of each machine; press Ctrl-C again to disconnect now"


@dataclass(slots=True)
class Row:
    """The progress of one machine. `end` is empty during the work, then DONE or the kind of error."""

    doing: str
    figure: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The live table: one row for each machine."""

    rows: dict[str, Row]

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        """Yield the count and the rows. If the screen is too small, rows of finished machines are left out."""
        names, height = list(self.rows), console.size.height - 3
        shown = names if len(names) <= height else [name for name in names if not self.rows[name].end][:height]
        table = Table.grid(padding=(0, 3), expand=True)
        # On a narrow screen only the last column is cut.
        for ratio in (None, None, 1):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for name in shown:
            row = self.rows[name]
            table.add_row(name, row.figure, row.end or row.doing)
        yield Text(self._count())
        yield table
        if hidden := len(names) - len(shown):
            yield Text(f"and {hidden} more")

    def _count(self) -> str:
        ends = [row.end for row in self.rows.values() if row.end]
        done = ends.count(DONE)
        failed = len(ends) - done
        return f"{done} of {len(self.rows)} done" + (f", {failed} failed" if failed else "")


@contextmanager
def shown(board: Board) -> Iterator[None]:
    """Show the board on a terminal while the block runs."""
    if not is_terminal():
        yield
        return
    # While a Live runs, rich replaces sys.stderr by a stream that leads back to the Live. This one does not.
    console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
    with Live(board, console=console, transient=True, refresh_per_second=4):
        yield


@dataclass
class Done:
    """The outcomes, in the order of the machines."""

    outcomes: tuple[NodeResult, ...]
    interrupted: bool = False


class ApplyProgress:
    """The outcome of each machine so far, and the board that shows it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.outcomes = {name: NodeResult(name) for name in names}
        self.board = Board({name: Row("logging in", "0") for name in names})

    def take(self, event: Event) -> None:
        """Enter an event. Without a terminal, print it, unless it repeats the one before."""
        outcome, row = self.outcomes[event.node], self.board.rows[event.node]
        outcome.take(event)
        previous, row.doing = row.doing, event.name or event.words or "reading facts"
        row.figure = f"{len(outcome.changed)}"
        row.end = DONE if outcome.is_done else str(outcome.error.kind) if outcome.error else ""
        is_repeated = event.step is Step.NOTE and event.words == previous
        line = event_line(event)
        if line and not is_repeated and not is_terminal():
            notify([line])


def apply_order(order: ApplyRequest, unreachable: Sequence[Event]) -> Done:
    """Carry out the order and show its progress. `unreachable` are errors of machines that ssh cannot reach."""
    progress = ApplyProgress([*(event.node for event in unreachable), *(target.node.name for target in order.targets)])
    done = Done(tuple(progress.outcomes.values()))
    with shown(progress.board):
        for event in unreachable:
            progress.take(event)
        if order.targets:
            with run_apply(order) as engine:
                done.interrupted = _follow(engine, progress)
    return done


def _follow(engine: ApplyProcess, progress: ApplyProgress) -> bool:
    """Enter all events, and return whether Ctrl-C was pressed. The first one stops the engine, the second raises."""
    events, interrupted = engine.events(), False
    while True:
        try:
            for event in events:
                progress.take(event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            notify([STOPPING])
            engine.stop()
            events = engine.events()
        else:
            return interrupted


def audit_nodes(audit: AuditRequest, names: Sequence[str]) -> tuple[Findings, ...]:
    """Check machines, show the progress, and return the findings in the order of the names."""
    board = Board({name: Row("waiting") for name in names})
    with shown(board):
        return tuple(run_audit(audit, names, lambda event: take_audit_event(board.rows[event.node], event)))


def take_audit_event(row: Row, event: Event) -> None:
    """Enter an event of an audit. It runs in the thread that checks the machine."""
    row.doing = event.name or event.words
    checked = event.changed + event.unchanged
    if rules := checked + event.ahead:
        row.figure = f"{checked} of {rules}" + (f", {event.changed} violated" if event.changed else "")
    row.end = DONE if event.step is Step.DONE else str(event.kind or "")
    line = audit_event_line(event)
    if line and not is_terminal():
        notify([line])


_STOPPING = "stopping: machines that are being changed finish their changes, and are not rebooted"


def upgrade(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", min=1, help="Upgrade N machines at a time.")] = 1,
    now: Annotated[bool, typer.Option("--now", help="End the sessions of people instead of waiting for them.")] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Drain, update and reboot machines.

    Applies all roles, also those whose changes wait. Refuses logins and waits up to an hour until nobody works on the
    machine, reboots it if required, and runs the health gate. Stops at the first machine that fails: exit status 6.
    """
    plan = plan_of(fleet)
    machines = select_machines(plan, names or (), group or (), site or (), every=every)
    check_plan_recorded(plan, fleet)
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, SshOptions(fleet, user, identity, ssh_config))
        done = _upgrade_all(ways, at_once, "now" if now else "wait")
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=False))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=False)


def _upgrade_all(ways: SshTargets, at_once: int, mode: str) -> Done:
    """Upgrade machines and show the progress; begin no other machine after a failure."""
    progress = ApplyProgress([*(event.node for event in ways.missing), *(target.node.name for target in ways.targets)])
    done = Done(tuple(progress.outcomes.values()))
    upgrades, has_failed = Upgrades(progress.take), bool(ways.missing)

    def upgrade_one(target: Target) -> None:
        nonlocal has_failed
        if not has_failed and not done.interrupted:
            has_failed |= not _upgrade_machine(upgrades, target, mode)

    with shown(progress.board), ThreadPoolExecutor(at_once) as pool:
        for event in ways.missing:
            progress.take(event)
        futures: list[Future[None]] = [pool.submit(upgrade_one, target) for target in ways.targets]
        try:
            wait(futures)
        except KeyboardInterrupt:
            done.interrupted = True
            notify([_STOPPING])
            upgrades.stop()
    for future in futures:
        future.result()
    return done


def _upgrade_machine(upgrades: Upgrades, target: Target, mode: str) -> bool:
    from bedplate.cli.node import push_folder  # it imports boto3

    if target.node.platform is Platform.CLOUD:
        return upgrades.upgrade(target, mode, PROGRAM, "fetch")
    try:
        script = push_folder(target)
    except NodeError as error:
        upgrades.report(error_event(target.node.name, error))
        return False
    return upgrades.upgrade(target, mode, script, "keep_script", "fetch")
