"""The cases of whole machines (tests/nodes/test_whole_machines.py) are those of the examples."""

import pytest

from bedplate.plan import Record
from tests.testlab.machines.whole_kinds import KINDS, planned_machines, planned_node, signature
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

# After `bedplate kube init`: machines of sites join only then.
RECORD = Record({}, authority="a certificate")
PLANS = {path.stem: plan_of(path, RECORD) for path in sorted(EXAMPLES.glob("*.yaml"))}
SIGNATURES = [signature(planned_node(kind, PLANS[kind.example])) for kind in KINDS]


@pytest.mark.parametrize("example", PLANS)
def test_each_kind_of_machine_has_a_case(example: str) -> None:
    """Each combination of platform and roles in an example is that of a machine that is tested as a whole."""
    machines = {node.name: signature(node) for node in planned_machines(PLANS[example])}

    assert {name: kind for name, kind in machines.items() if kind not in SIGNATURES} == {}


def test_each_case_is_another_kind() -> None:
    """No two cases have the same platform and roles."""
    assert len(set(SIGNATURES)) == len(KINDS)
