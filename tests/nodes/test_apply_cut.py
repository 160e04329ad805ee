"""`bedplate node apply` that is cut off: by the wire, and by its operator."""

import os
import signal

import pytest

from tests.testlab.machines.lab import BENCH, QUICK, LabFolder, wait_for
from tests.testlab.machines.stand import Node

pytestmark = pytest.mark.nightly


@pytest.mark.usefixtures("drifted")
def test_a_cut_wire_is_told_and_the_next_apply_makes_it_good(lab_of_one: LabFolder, node: Node) -> None:
    """Packets that are lost in the middle of an operation: it ends by itself, and what is left is done later."""
    with lab_of_one.applying(BENCH, *QUICK) as running:
        wait_for(running, ": looking")
        node.cut()
        _, said = running.communicate(timeout=120)
    node.heal()
    second = lab_of_one.outcome(BENCH, *QUICK)
    third = lab_of_one.outcome(BENCH, *QUICK)

    assert "Traceback" not in said
    assert running.returncode == 6, said
    assert second["status"] == 0
    assert third[BENCH]["changed"] == []


@pytest.mark.usefixtures("drifted")
def test_ctrl_c_stops_between_two_operations(lab_of_one: LabFolder) -> None:
    """One Ctrl-C, one clean end: what runs is finished, the node is named, and the next apply goes on."""
    with lab_of_one.applying(BENCH) as running:
        wait_for(running, ": looking")
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
    after = lab_of_one.outcome(BENCH, *QUICK)

    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert f"not done: {BENCH}" in out
    assert after["status"] == 0
