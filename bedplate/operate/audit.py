"""Machines are checked against the plan: by the compliance rules over SSH, or on the machine itself."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bedplate.nodes.audit import AuditRequest, Findings, run_audit
from bedplate.nodes.ssh import Login, NodeLocation
from bedplate.operate import Operator
from bedplate.operate.login import ssh_targets
from bedplate.plan import FleetPlan


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
