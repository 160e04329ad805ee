"""The roles `nvidia` and `frameworks` with apt and systemd, on a node with a fake driver and a fake PyTorch.

No GPU is involved: tests/testlab/machines/fake_driver.py has the driver.
"""

import pytest

from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.fake_driver import FAKE_PYTORCH, fake_driver
from tests.testlab.machines.lab import FAILED, WORKBENCH, FleetFolder, check_defects
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator

pytestmark = pytest.mark.nightly

# The exporter of GPUs has the key of the other one, and leases are those of jobs.
ROLE = ("--role", "nvidia", "--role", "frameworks", "--role", "jobs", "--role", "monitoring")
_DEFECTS = defects_at(Where.GPU)


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab, fleet_folder: FleetFolder) -> Operator:
    """Return the operator of a fleet whose workbench has eight H100."""
    fleet_folder.edit(r"(titan-03: \{)", r"\1gpus: {model: h100, count: 8}, ")
    fleet_folder.record()
    return Operator(node_lab, fleet_folder.fleet)


@pytest.fixture(scope="module")
def applied(node: Node, operator: Operator) -> list[str]:
    """Apply the role to a node without a driver; return the changes."""
    node.run(fake_driver("H100 80GB HBM3", 8))
    node.run(FAKE_PYTORCH)
    return operator.changes(WORKBENCH, *ROLE)[WORKBENCH]


def test_a_second_apply_changes_nothing(applied: list[str], operator: Operator) -> None:
    """The driver is installed, held and loaded by the first apply; a second one changes nothing."""
    assert any("driver" in change for change in applied)
    assert operator.changes(WORKBENCH, *ROLE) == {WORKBENCH: []}


@pytest.fixture(scope="module")
def rule_outcomes(
    applied: list[str], node: Node, fleet_folder: FleetFolder, tmp_path_factory: pytest.TempPathFactory
) -> dict[Rule, str]:
    """Return the outcome of each rule with its defect."""
    assert applied
    return check_defects(fleet_folder, node, _DEFECTS, tmp_path_factory.mktemp("defects"))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on the applied node, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED


def test_a_used_gpu_keeps_its_driver(
    rule_outcomes: dict[Rule, str], node: Node, operator: Operator, fleet_folder: FleetFolder
) -> None:
    """Another branch replaces the driver once no program uses a GPU, and is then loaded."""
    assert rule_outcomes
    fleet_folder.edit(r'driver: "580"', 'driver: "595"')
    node.run("systemd-run --quiet --unit job sh -c 'exec sleep infinity </dev/nvidia0'")
    operator.changes(WORKBENCH, *ROLE)
    assert node.run("cat /sys/module/nvidia/version") == "580.95.05\n"

    node.run("systemctl stop job")
    operator.changes(WORKBENCH, *ROLE)

    assert node.run("cat /sys/module/nvidia/version") == "595.71.05\n"
    assert "-580" not in node.run("dpkg-query --show --showformat '${Package} ' '*nvidia*'")
