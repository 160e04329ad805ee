"""What the stacks of the examples are made of, by type and name: a renamed resource is a deleted one."""

import pytest

from bedplate.plan import FleetPlan
from tests.conftest import Expect
from tests.support.declared import EXAMPLES, Declared, declared, plan_of


@pytest.fixture(scope="module", params=["lab", "minimal"])
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Give the plan of each example in turn."""
    return plan_of(EXAMPLES / f"{request.param}.yaml")


@pytest.fixture(scope="module")
def stacks(plan: FleetPlan) -> Declared:
    """Give what the example's stacks declare."""
    return declared(plan)


def test_no_resource_is_renamed_unawares(stacks: Declared, expect: Expect) -> None:
    """Types, parents and names of every resource are those that fleets have today."""
    for name, entries in stacks.items():
        lines = sorted(entry.urn.partition("::")[2].partition("::")[2] for entry in entries)

        expect(f"stacks/{name}.txt", "\n".join(lines) + "\n")
