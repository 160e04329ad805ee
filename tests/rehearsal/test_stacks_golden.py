"""What the stacks of some fleets are made of, by type and name: a renamed resource is a deleted one."""

import pytest

from bedplate.plan import FleetPlan
from tests.conftest import DATA, Expect
from tests.support.declared import EXAMPLES, Declared, declared, plan_of

FILES = (EXAMPLES / "lab.yaml", EXAMPLES / "minimal.yaml", DATA / "fleets" / "joined.yaml")


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Give the plan of each file in turn."""
    return plan_of(request.param)


@pytest.fixture(scope="module")
def stacks(plan: FleetPlan) -> Declared:
    """Give what the file's stacks declare."""
    return declared(plan)


def test_no_resource_is_renamed_unawares(stacks: Declared, expect: Expect) -> None:
    """Types, parents and names of every resource are those that fleets have today."""
    for name, entries in stacks.items():
        lines = sorted(entry.urn.partition("::")[2].partition("::")[2] for entry in entries)

        expect(f"stacks/{name}.txt", "\n".join(lines) + "\n")
