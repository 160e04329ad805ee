"""Rules for VPN gateways: the gateway agent and its metrics."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_to, differing_files
from bedplate.plan.nodes import NodePlan, NodeRole, Platform
from roles.base import LIBRARY
from roles.vpnagent.role import METRICS, TIMER, agent_files

pytestmark = applies_to(NodeRole.LAPTOPS, NodeRole.TUNNELS)


def test_agent_is_the_current_version(host: Host, node: NodePlan) -> None:
    """The gateway agent is the version of this project; an older one may not support all commands."""
    files = agent_files(in_cloud=node.platform is Platform.CLOUD)
    changed = differing_files(host, files)
    installed = host.check_output("find %s -name '*.py'", f"{LIBRARY}/gateway").split()
    others = {*installed} - {file.path for file in files}

    assert not changed, f"changed: {', '.join(changed)}"
    assert not others, f"of another version: {', '.join(sorted(others))}"


def test_vpn_metrics_are_current(host: Host, node: NodePlan) -> None:
    """VPN metrics for Prometheus are at most three minutes old."""
    assert host.service(TIMER).is_running
    metrics = f"{METRICS}/bedplate-vpn.prom"
    assert host.run("test $(( $(date +%%s) - $(stat -c %%Y %s) )) -lt 180", metrics).rc == 0
