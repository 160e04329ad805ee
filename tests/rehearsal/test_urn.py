"""Unique resource names."""

import pytest

from bedplate.rehearsal.urn import STACK_TYPE, Urn, child, parse

STACK = f"urn:pulumi:lab::proj::{STACK_TYPE}::proj-lab"
DEEP = "urn:pulumi:lab::proj::t:t:A$t:t:B::box"


@pytest.mark.parametrize("urn", [STACK, DEEP, "urn:pulumi:lab.us-west-2::p::aws:ssm/parameter:Parameter::a::b"])
def test_a_urn_is_its_parts(urn: str) -> None:
    """Taken apart and put together it is the same; a name may hold colons."""
    assert str(parse(urn)) == urn


def test_a_type_is_the_last_of_the_types() -> None:
    """What stands before it are its parents'."""
    assert parse(DEEP).type == "t:t:B"


@pytest.mark.parametrize(
    ("parent", "types"), [("", "t:t:C"), (STACK, "t:t:C"), (DEEP, "t:t:A$t:t:B$t:t:C")], ids=["none", "stack", "deep"]
)
def test_a_child_carries_all_types_above_it(parent: str, types: str) -> None:
    """The parent's whole qualified type counts, the root stack's does not."""
    assert child("lab", "proj", parent, "t:t:C", "c") == str(Urn("lab", "proj", types, "c"))


def test_what_is_no_urn_is_refused() -> None:
    """A text without a URN's parts is an error, not an empty one."""
    with pytest.raises(ValueError, match="unpack"):
        parse("box")
