"""The commands that log in to machines: node apply configures them, node audit checks them."""

import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.fleet import plan_of
from bedplate.cli.node_choice import SshOptions, select_machines, select_roles, ssh_ways
from bedplate.cli.node_progress import apply_order, audit_nodes
from bedplate.cli.options import (
    DEFAULT_FLEET,
    Every,
    FleetOption,
    Groups,
    Identity,
    Json,
    Names,
    Sites,
    SshConfig,
    User,
)
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, PartError, ViolationError
from bedplate.hold import login_name
from bedplate.load.source import today
from bedplate.lock import refuse_unrecorded
from bedplate.nodes.apply import Order, exit_status
from bedplate.nodes.audit import Audit, Findings, Outcome
from bedplate.nodes.ssh import Login, Reached
from bedplate.plan import FleetPlan
from bedplate.report.compliance import compliance_document, compliance_lines, compliance_page, is_partial, junit_report
from bedplate.report.nodes import apply_document, apply_lines
from bedplate.writer import try_out, write_together

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
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_ways(Path(folder), plan, machines, SshOptions(user, identity, ssh_config))
        if not check:
            refuse_unrecorded(plan, fleet)
        done = apply_order(Order(ways.targets, _applicant(), check=check, only=roles), ways.missing)
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=check))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=check)


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
        findings = audit_nodes(Audit(fleet, only=roles), [machine.node.name for machine in machines])
    else:
        findings = _audit_over_ssh(fleet, plan, machines, roles, SshOptions(user, identity, ssh_config))
    if json:
        show_document(compliance_document(findings))
    else:
        show(compliance_lines(findings, whole=verbose))
    _write_reports(plan.name, findings, junit, html)
    if any(found.of(Outcome.VIOLATED) for found in findings):
        return ViolationError.exit_code
    return PartError.exit_code if any(map(is_partial, findings)) else 0


def _audit_over_ssh(
    fleet: Path, plan: FleetPlan, machines: Sequence[Reached], roles: frozenset[str] | None, options: SshOptions
) -> tuple[Findings, ...]:
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_ways(Path(folder), plan, machines, options)
        # The configuration that ssh_ways writes names the user and the key already.
        login = Login(options.user, options.identity) if options.config else Login()
        pools = {machine.node.name: machine.pool for machine in machines if machine.pool}
        order = Audit(fleet, options.config or Path(folder) / "ssh_config", login, roles, pools)
        findings = {found.node: found for found in audit_nodes(order, [target.node.name for target in ways.targets])}
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
