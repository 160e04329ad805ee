"""Every node: its name, its time, its packages, its limits."""

from testinfra.host import Host

from bedplate.plan.node import NodePlan


def test_the_node_knows_its_name(host: Host, node: NodePlan) -> None:
    """Logs and prompts name the machine as the plan does."""
    assert host.check_output("hostname") == node.host
