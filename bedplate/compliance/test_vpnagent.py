"""Rules for VPN gateways: the gateway agent and its metrics."""

from pathlib import Path

from testinfra.host import Host

import bedplate.programs.gateway
from bedplate.compliance.settings import applies_to
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.vpnagent.role import FOLDER, METRICS, PROGRAM, TIMER

pytestmark = applies_to(NodeRole.LAPTOPS, NodeRole.TUNNELS)


def test_agent_is_the_current_version(host: Host, node: NodePlan) -> None:
    """The gateway agent is the version of this project; an older one may not support all commands."""
    modules = {file.name: file for file in Path(bedplate.programs.gateway.__file__).parent.glob("*.py")}

    assert set(host.file(f"{FOLDER}/vpnagent").listdir()) - {"__pycache__"} == set(modules)
    for name, file in modules.items():
        assert host.file(f"{FOLDER}/vpnagent/{name}").content_string == file.read_text(encoding="utf-8")
    assert oct(host.file(PROGRAM).mode) == "0o755"


def test_vpn_metrics_are_current(host: Host, node: NodePlan) -> None:
    """VPN metrics for Prometheus are at most three minutes old."""
    assert host.service(TIMER).is_running
    metrics = f"{METRICS}/bedplate-vpn.prom"
    assert host.run("test $(( $(date +%%s) - $(stat -c %%Y %s) )) -lt 180", metrics).rc == 0
