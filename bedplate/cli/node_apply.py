"""The commands that configure and check machines over SSH: node apply, upgrade, audit."""

from pathlib import Path
from typing import Annotated

import typer

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
    Terminal,
    User,
)
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.files import try_out, write_together
from bedplate.load.source import today
from bedplate.nodes.apply import exit_status
from bedplate.nodes.audit import RuleOutcome
from bedplate.operate.apply import (
    INTERRUPTED,
    Done,
    Selection,
    apply_machines,
    select_machines,
    select_roles,
    upgrade_machines,
)
from bedplate.operate.audit import audit_machines
from bedplate.operate.fleet import plan_of
from bedplate.report.compliance import compliance_document, compliance_lines, compliance_page, is_partial, junit_report
from bedplate.report.nodes import apply_document, apply_lines


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
    operator = Terminal(fleet, user, identity, ssh_config)
    plan = plan_of(operator)
    machines = select_machines(operator, plan, Selection(names or (), group or (), site or (), every))
    done = apply_machines(operator, plan, machines, select_roles(role or (), machines), check=check)
    return _show_done(done, check=check, json=json)


def _show_done(done: Done, *, check: bool = False, json: bool) -> int:
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=check))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=check)


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
    operator = Terminal(fleet, user, identity, ssh_config)
    plan = plan_of(operator)
    is_default = not (names or group or site)
    machines = select_machines(operator, plan, Selection(names or (), group or (), site or (), every or is_default))
    if local and len(machines) != 1:
        raise InputError(
            f"--local checks one machine, not {len(machines)}", fix="name the machine you are logged in to"
        )
    roles = select_roles(role or (), machines)
    _check_writable(junit, html)
    findings = audit_machines(operator, plan, machines, roles, is_local=local)
    if not any(node_findings.verdicts or node_findings.unreached for node_findings in findings):
        raise InputError("no rule applies to these machines", fix="leave out --role, or name other machines")
    if json:
        show_document(compliance_document(findings))
    else:
        show(compliance_lines(findings, whole=verbose))
    texts = {junit: junit_report(findings)} if junit else {}
    write_together(texts | ({html: compliance_page(plan.name, str(today()), findings).encode()} if html else {}))
    if any(node_findings.of(RuleOutcome.VIOLATED) for node_findings in findings):
        return ViolationError.exit_code
    return PartialError.exit_code if any(map(is_partial, findings)) else 0


def _check_writable(*files: Path | None) -> None:
    """Raise for a report that cannot be written, before any machine is checked."""
    for file in filter(None, files):
        folder = file.absolute().parent
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder), fix=f"run `mkdir -p {folder}`")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix=f"name a file, such as {file / 'audit'}")
    try_out(filter(None, files))


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
    operator = Terminal(fleet, user, identity, ssh_config)
    plan = plan_of(operator)
    machines = select_machines(operator, plan, Selection(names or (), group or (), site or (), every))
    return _show_done(upgrade_machines(operator, plan, machines, at_once, "now" if now else "wait"), json=json)
