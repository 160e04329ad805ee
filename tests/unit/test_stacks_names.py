"""The names of stacks, and the parts they hold."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import Record, plan_fleet
from stacks.names import part_of, parts, stack_name
from stacks.program import declare
from tests.support.sketch import sketch

PLAN = plan_fleet(sketch(), Record({}), load_catalog())


def test_parts_come_in_the_order_in_which_they_are_made() -> None:
    """Regions read the shared stack, the links read the regions."""
    assert parts(PLAN) == ("shared", "us-west-2", "us-east-1", "eu-north-1", "links")


def test_a_stacks_name_says_its_part() -> None:
    """`pulumi up -s lab.us-west-2` is all of one region."""
    assert all(part_of(PLAN, stack_name(PLAN, part)) == part for part in parts(PLAN))


@pytest.mark.parametrize("stack", ["other.shared", "lab.us-west-9", "lab", "us-west-2"])
def test_a_stack_of_no_part_is_refused(stack: str) -> None:
    """A stack made under a mistyped name must stay empty; the fault lists the right names."""
    with pytest.raises(InputError) as caught:
        part_of(PLAN, stack)

    assert stack in caught.value.what
    assert "lab.us-west-2" in caught.value.fix


def test_an_unknown_part_is_refused() -> None:
    """The fault names the parts there are."""
    with pytest.raises(InputError, match="us-west-9") as caught:
        declare(PLAN, "us-west-9")

    assert "shared, us-west-2, us-east-1, eu-north-1, links" in caught.value.fix
