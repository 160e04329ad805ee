"""`bedplate node apply` interrupted by the network, and by Ctrl-C."""

import os
import signal

import pytest

from tests.testlab.machines.lab import QUICK, WORKBENCH, FleetFolder, wait_for
from tests.testlab.machines.node_lab import Node

pytestmark = pytest.mark.nightly


@pytest.mark.usefixtures("drifted")
def test_lost_connection_is_reported_and_the_next_apply_completes(fleet_folder: FleetFolder, node: Node) -> None:
    """An apply whose packets are lost ends by itself, and the next one completes the work."""
    with fleet_folder.start_apply(WORKBENCH, *QUICK) as process:
        wait_for(process, ": reading facts")
        node.cut()
        _, stderr = process.communicate(timeout=120)
    node.heal()
    second = fleet_folder.outcome(WORKBENCH, *QUICK)
    third = fleet_folder.outcome(WORKBENCH, *QUICK)

    assert "Traceback" not in stderr
    assert process.returncode == 6, stderr
    assert second["status"] == 0
    assert third[WORKBENCH]["changed"] == []


@pytest.mark.usefixtures("drifted")
def test_ctrl_c_stops_between_two_operations(fleet_folder: FleetFolder) -> None:
    """Ctrl-C finishes the current operation, names the node, and the next apply continues."""
    with fleet_folder.start_apply(WORKBENCH) as process:
        wait_for(process, ": reading facts")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    after = fleet_folder.outcome(WORKBENCH, *QUICK)

    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"not done: {WORKBENCH}" in out
    assert after["status"] == 0
