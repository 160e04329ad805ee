"""The role `efa` on a cloud node with a fake libfabric: no EFA is involved, and nothing is downloaded."""

import pytest

from bedplate.catalog import load_catalog
from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.fake_driver import FAKE_EFA
from tests.testlab.machines.lab import FAILED, FleetFolder, check_defects, make_fleet_folder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator

pytestmark = pytest.mark.nightly

NAME = "workbench-cpu-1.us-west-2"
ROLE = ("--role", "efa")
_DEFECTS = defects_at(Where.FABRIC)


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab) -> FleetFolder:
    """Return an operator's folder whose CPU workbenches have one EFA interface each."""
    folder = make_fleet_folder(node_lab, node_lab.folder)
    folder.edit(r"types: \[m7i.4xlarge\]", "types: [c7i.48xlarge]\n    fabric: efa")
    folder.record()
    return folder


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, lab: FleetFolder) -> Node:
    """Return a node with the role applied."""
    booted = node_lab.boot(NAME, "10.64.33.7")
    booted.run(FAKE_EFA.replace("VERSION", load_catalog().software_set(None).value("efa")))
    assert Operator(node_lab, lab.fleet).changes(NAME, *ROLE)[NAME]
    return booted


@pytest.fixture(scope="module")
def rule_outcomes(node: Node, lab: FleetFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Return the outcome of each rule with its defect."""
    return check_defects(lab, node, _DEFECTS, tmp_path_factory.mktemp("defects"))


def test_a_second_apply_changes_nothing(node: Node, node_lab: NodeLab, lab: FleetFolder) -> None:
    """The installed software of the software set is kept."""
    assert Operator(node_lab, lab.fleet).changes(node.name, *ROLE) == {NAME: []}


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on the applied node, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED
