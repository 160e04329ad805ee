"""Rules for workers of the cluster: the agent is the planned one, and no credentials of the join remain."""

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan, Platform
from bedplate.programs.worker.machine import KUBECONFIG
from roles.worker.role import Worker

pytestmark = applies_if(
    lambda node: node.cluster is not None and node.cluster.member is None and bool(node.cluster.cluster.authority)
)

_PKI = "/var/lib/kubelet/pki"
_LEFT = ("/etc/kubernetes/bootstrap-kubelet.conf", f"{_PKI}/bedplate-join.key")


def test_worker_agent_is_the_planned_one(host: Host, node: NodePlan) -> None:
    """The agent joins the cluster of the plan, and drains the machine in its time."""
    assert node.cluster
    changed = differing_files(host, Worker(node.cluster, node.platform is Platform.CLOUD).files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_credentials_of_a_node_are_its_own(host: Host) -> None:
    """After the join no token and no spare key remain, and only root reads kubelet's key."""
    if not host.file(f"/{KUBECONFIG}").exists:
        pytest.skip("this machine has not joined the cluster")
    remaining = [path for path in _LEFT if host.file(path).exists]
    readable = host.check_output("find %s %s -type f -perm /077 -not -name '*.crt'", f"/{KUBECONFIG}", _PKI).split()

    assert not remaining, f"remains: {', '.join(remaining)}"
    assert not readable, f"readable by others: {', '.join(readable)}"
