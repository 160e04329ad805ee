"""`bedplate node apply` that is cut off: by the wire, and by its operator."""

import os
import signal

import pytest

from tests.support.stand.lab import LabFolder, lab_folder, wait_for
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand

NAME = "titan-03.cellar"
# A role of few operations, for tests of what is around them.
QUICK = ("--role", "monitoring")


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give one machine of the cellar, a workbench."""
    return stand.boot(NAME, "192.168.40.23")


@pytest.fixture(scope="module")
def lab(stand: Stand, node: Node, tmp_path_factory: pytest.TempPathFactory) -> LabFolder:
    """Give the folder of the fleet, whose lock knows the machine; applied once."""
    made = lab_folder(stand, tmp_path_factory.mktemp("lab"))
    made.know(node)
    return made


@pytest.fixture
def drifted(node: Node) -> None:
    """Let there be something to do that takes packages: the exporter is gone."""
    node.run("apt-get purge --yes --quiet prometheus-node-exporter >/dev/null 2>&1 || true")


@pytest.mark.usefixtures("drifted")
def test_a_cut_wire_is_told_and_the_next_apply_makes_it_good(lab: LabFolder, node: Node) -> None:
    """Packets that are lost in the middle of an operation: it ends by itself, and what is left is done later."""
    with lab.applying(NAME, *QUICK) as running:
        wait_for(running, ": looking")
        node.cut()
        _, said = running.communicate(timeout=120)
    node.heal()
    second = lab.outcome(NAME, *QUICK)
    third = lab.outcome(NAME, *QUICK)

    assert "Traceback" not in said
    assert running.returncode == 6, said
    assert second["status"] == 0
    assert third[NAME]["changed"] == []


@pytest.mark.usefixtures("drifted")
def test_ctrl_c_stops_between_two_operations(lab: LabFolder) -> None:
    """One Ctrl-C, one clean end: what runs is finished, the node is named, and the next apply goes on."""
    with lab.applying(NAME) as running:
        wait_for(running, ": looking")
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
    after = lab.outcome(NAME, *QUICK)

    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert f"not done: {NAME}" in out
    assert after["status"] == 0
