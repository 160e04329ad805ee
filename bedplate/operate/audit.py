"""Machines are checked against the plan: by the compliance rules over SSH, or on the machine itself."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.files import try_out, write_together
from bedplate.load.source import today
from bedplate.nodes.audit import AuditRequest, Findings, RuleOutcome, run_audit
from bedplate.nodes.ssh import Login, NodeLocation
from bedplate.operate import Operator, Result
from bedplate.operate.apply import Selection, select_machines, select_roles
from bedplate.operate.fleet import plan_of
from bedplate.operate.login import ssh_targets
from bedplate.plan import FleetPlan
from bedplate.report.compliance import (
    compliance_document,
    compliance_lines,
    compliance_page,
    is_partial,
    junit_report,
)


@dataclass(frozen=True, slots=True)
class Reports:
    """Files of an audit's findings, as JUnit XML and as HTML; `verbose` lines also have rules that are met."""

    junit: Path | None = None
    html: Path | None = None
    verbose: bool = False


def audit(
    operator: Operator,
    selection: Selection = Selection(),  # noqa: B008  it is frozen
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
    texts = {reports.junit: junit_report(findings)} if reports.junit else {}
    if reports.html:
        texts[reports.html] = compliance_page(plan.name, str(today()), findings).encode()
    write_together(texts)
    lines = compliance_lines(findings, whole=reports.verbose)
    status = PartialError.exit_code if any(map(is_partial, findings)) else 0
    if any(node_findings.of(RuleOutcome.FAILED) for node_findings in findings):
        status = ViolationError.exit_code
    return Result(lines, compliance_document(findings), status)


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
    with operator.audits(names) as report:
        return tuple(run_audit(request, names, report))
