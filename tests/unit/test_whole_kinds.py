"""The cases of whole machines (tests/nodes/test_whole_machines.py) are those of the examples."""

from pathlib import Path

import pytest

from bedplate.plan import Record
from tests.testlab.machines.whole_kinds import KINDS, planned_machines, planned_node, signature
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

# After `bedplate kube init`: machines of sites join only then.
RECORD = Record({}, authority="a certificate")


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_kind_of_machine_has_a_case(example: Path) -> None:
    """Each combination of platform and roles in an example is that of a machine that is tested as a whole."""
    lab = plan_of(EXAMPLES / "lab.yaml", RECORD)
    covered = {signature(planned_node(kind, lab)) for kind in KINDS}

    missing = {node.name: signature(node) for node in planned_machines(plan_of(example, RECORD))}

    assert {name: kind for name, kind in missing.items() if kind not in covered} == {}


def test_each_case_is_another_kind() -> None:
    """No two cases have the same platform and roles."""
    lab = plan_of(EXAMPLES / "lab.yaml", RECORD)

    assert len({signature(planned_node(kind, lab)) for kind in KINDS}) == len(KINDS)
