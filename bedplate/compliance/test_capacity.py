"""Rules for members of the control plane: the capacity controller."""

import time

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan
from roles.capacity.role import METRICS, UNIT, Capacity
from roles.control.role import PKI

pytestmark = applies_if(lambda node: node.capacity is not None)

# A round takes half a minute, and 150 seconds more if the API server does not answer.
_LONGEST_AGE = 600


def test_capacity_has_the_planned_files(host: Host, node: NodePlan) -> None:
    """The controller has the pools and rights of the plan."""
    assert node.capacity
    changed = differing_files(host, Capacity(node.capacity).files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_capacity_controller_has_run_lately(host: Host) -> None:
    """The controller has written its metrics within the last ten minutes, also while another member's acts."""
    if not host.file(f"{PKI}/ca.key").exists:
        pytest.skip("the cluster has no authorities yet")
    written = host.run("stat -c %%Y %s", METRICS).stdout

    assert float(written or 0) > time.time() - _LONGEST_AGE, f"read `journalctl -u {UNIT}`"
