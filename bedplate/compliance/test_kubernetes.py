"""Rules for nodes of the cluster: kubelet and the kernel have the planned settings, and the node its own name."""

import shlex

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan
from roles.base import ManagedFile, file_text
from roles.kubernetes.role import MODULES, SYSCTL, kubelet_files

pytestmark = applies_if(lambda node: node.cluster is not None)

_STARTED = "/run/bedplate/kubelet.env"


def test_kubelet_has_the_planned_settings(host: Host, node: NodePlan) -> None:
    """Labels, taints, reserved resources and access to kubelet are those of the plan."""
    assert node.cluster
    changed = differing_files(host, kubelet_files(node.cluster))

    assert not changed, f"changed: {', '.join(changed)}"


def test_kernel_is_prepared_for_pods(host: Host) -> None:
    """Modules and sysctls that pods need are loaded at each boot."""
    planned = {MODULES: "modules.conf", SYSCTL: "sysctl.conf"}
    changed = differing_files(
        host, (ManagedFile("", path, file_text(f"kubernetes/{name}")) for path, name in planned.items())
    )

    assert not changed, f"changed: {', '.join(changed)}"


def test_node_registers_under_its_own_name(host: Host, node: NodePlan) -> None:
    """kubelet's name is the machine's name in the fleet: certificates and labels are bound to it."""
    assert node.cluster
    if not host.file(_STARTED).exists:
        pytest.skip("kubelet has not started: this machine has not joined the cluster")
    arguments = shlex.split(host.file(_STARTED).content_string.partition("=")[2])
    name = next(word.partition("=")[2] for word in arguments if word.startswith("--hostname-override="))
    before, star, after = node.cluster.name.partition("*")

    assert name.startswith(before), f"registered as {name}"
    assert name.endswith(after), f"registered as {name}"
    assert star or name == node.cluster.name, f"registered as {name}"
