"""Names of the machines that people log in to."""

from collections.abc import Mapping

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.hostnames import highest, ssh_patterns
from stacks.first_boot import first_boot
from tests.support.sketch import group, sketch

WEST: Mapping[str, object] = {"region": "us-west-2"}
EAST: Mapping[str, object] = {"region": "us-east-1"}
RESERVED = {
    **WEST,
    "zone": "us-west-2a",
    "market": "reservation",
    "reservation": "cr-0123456789abcdef0",
    "reserved": 2,
}
OTHER = {**RESERVED, "zone": "us-west-2b", "reservation": "cr-0123456789abcdef1", "reserved": 3}


@pytest.mark.parametrize(
    ("ladder", "last"),
    [
        ((WEST,), 12),
        ((WEST, {**WEST, "market": "spot"}), 12),
        ((RESERVED, WEST), 12),
        ((RESERVED, OTHER), 5),
        ((RESERVED, EAST), 2),
    ],
    ids=["one", "two-markets", "reserved-first", "reserved-twice", "elsewhere"],
)
def test_pools_of_a_group_share_its_names_in_a_region(ladder: tuple[Mapping[str, object], ...], last: int) -> None:
    """A machine of a small reservation finds a name also where other pools of its group have the first ones."""
    groups = {"desk": group(*ladder, types=("m7i.xlarge",), nodes={"min": 0, "max": 12})}
    plan = plan_fleet(sketch(groups=groups), Record({}), load_catalog())
    pool = plan.pools[0]

    assert highest(plan, pool) == last
    assert len(ssh_patterns(plan, pool)) == len(str(last))
    assert f"readonly HIGHEST={last}\n" in first_boot(plan, pool)
