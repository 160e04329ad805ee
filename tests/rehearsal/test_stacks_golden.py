"""What the stacks of some fleets are made of, by type and name: a renamed resource is a deleted one."""

import pytest

from tests.conftest import DATA, Expect
from tests.support.declared import EXAMPLES, Declared, declared_of

FILES = (EXAMPLES / "lab.yaml", EXAMPLES / "minimal.yaml", DATA / "fleets" / "joined.yaml")


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def stacks(request: pytest.FixtureRequest) -> Declared:
    """Give what the stacks of each file in turn declare."""
    return declared_of(request.param)


def test_no_resource_is_renamed_unawares(stacks: Declared, expect: Expect) -> None:
    """Types, parents and names of every resource are those that fleets have today."""
    for name, entries in stacks.items():
        lines = sorted(entry.urn.partition("::")[2].partition("::")[2] for entry in entries)

        expect(f"stacks/{name}.txt", "\n".join(lines) + "\n")
