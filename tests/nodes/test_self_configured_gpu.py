"""A GPU workbench configures itself: from the user data of its launch template to a passed gate, with a fake driver.

It boots from an image that was baked on a machine without a GPU. The driver is that of
tests/testlab/machines/fake_driver.py.
"""

from collections.abc import Iterator

import pytest

from bedplate.files import read_json
from tests.testlab.machines.fake_driver import fake_driver, fake_gpus
from tests.testlab.machines.layers import baked
from tests.testlab.machines.node_lab import NodeLab
from tests.testlab.machines.self_configured import SelfConfigured, cloud

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def machine(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SelfConfigured]:
    """Yield a workbench with one L4 after its first boot."""
    with cloud(node_lab, tmp_path_factory.mktemp("place"), "workbench-gpu") as aws:
        bake = node_lab.boot("bake", "10.64.33.6")
        bake.run(fake_driver("L4", 0))
        _, image = aws.bake(bake)
        node = node_lab.boot("workbench-gpu-1.us-west-2", "10.64.33.9", image=(image, *baked()))
        node.run(fake_gpus("L4", 1))
        yield aws.first_boot(node)[0]


def test_it_is_ready_with_its_driver(machine: SelfConfigured) -> None:
    """The driver of the plan is installed and loaded, the gate has seen the GPU, and no rule fails."""
    run, gate, audit = (machine.place.status(machine.bucket, name) for name in ("run", "gate", "audit"))

    assert (run["ok"], run["ready"]) == (True, True), f"{run['sentence']}\n{machine.log}"
    # The log, because the status may be that of a later run, which the timer started.
    assert "installed by its image" in machine.log
    findings = {finding["check"]: finding["text"] for finding in gate["findings"]}
    assert (gate["ok"], findings["driver"], findings["gpus"]) == (True, "version 580.95.05", "1 l4, planned 1")
    (node,) = audit["nodes"]
    assert [verdict for verdict in node["verdicts"] if verdict["outcome"] == "failed"] == []
    kept = {verdict["rule"] for verdict in node["verdicts"] if verdict["outcome"] == "passed"}
    assert {rule for rule in kept if "driver" in rule}
    assert machine.logs_in() == "0"


def test_a_gpu_that_is_lost_is_reported(machine: SelfConfigured) -> None:
    """The gate that runs every five minutes fails, and names the missing GPU."""
    machine.node.run("rm /dev/nvidia0; systemctl start bedplate-gate.service || true")

    verdict = read_json(machine.node.root / "var/lib/bedplate/gate.json")
    failed = [finding["text"] for finding in verdict["findings"] if not finding["ok"]]
    # The bus still has it.
    assert (failed, verdict["verdict"]) == (["0 l4, planned 1"], "unknown")
