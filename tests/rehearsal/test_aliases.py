"""Earlier identities of a resource."""

import pytest

from bedplate.rehearsal.aliases import earlier_urns
from bedplate.rehearsal.registration import AliasSpec, Registration
from bedplate.rehearsal.urn import child

STACK = "urn:pulumi:lab::proj::pulumi:pulumi:Stack::proj-lab"
BOX = "urn:pulumi:lab::proj::t:t:Box::box"
CASE = "urn:pulumi:lab::proj::t:t:Case::case"


def _earlier(*aliases: AliasSpec, parent: str = STACK, parents: tuple[str, ...] = (), name: str = "disk") -> list[str]:
    asked = Registration(
        type="t:t:Disk", name=name, parent=parent, custom=True, inputs={}, property_dependencies={}, aliases=aliases
    )
    urn = child("lab", "proj", parent, asked.type, name)
    return [one.removeprefix("urn:pulumi:") for one in earlier_urns(asked, urn, parents)]


ALIASES = {
    "urn": (AliasSpec(urn="urn:pulumi:lab::proj::t:t:Old::old"), STACK, "lab::proj::t:t:Old::old"),
    "name": (AliasSpec(name="old"), STACK, "lab::proj::t:t:Disk::old"),
    "type": (AliasSpec(type="t:t:Old"), STACK, "lab::proj::t:t:Old::disk"),
    "stack": (AliasSpec(stack="before"), STACK, "before::proj::t:t:Disk::disk"),
    "project": (AliasSpec(project="before"), STACK, "lab::before::t:t:Disk::disk"),
    "parent": (AliasSpec(parent=CASE), BOX, "lab::proj::t:t:Case$t:t:Disk::disk"),
    "no parent": (AliasSpec(no_parent=True), BOX, "lab::proj::t:t:Disk::disk"),
}


@pytest.mark.parametrize(("alias", "parent", "urn"), ALIASES.values(), ids=ALIASES.keys())
def test_an_alias_names_what_differed(alias: AliasSpec, parent: str, urn: str) -> None:
    """What an alias leaves out is as it is today."""
    assert _earlier(alias, parent=parent) == [urn]


def test_a_resource_without_aliases_has_none() -> None:
    """Its present URN is no earlier one."""
    assert _earlier() == []


def test_a_child_goes_with_its_renamed_parent() -> None:
    """A child has the types of what its parent was before."""
    assert _earlier(parent=CASE, parents=(BOX,)) == ["lab::proj::t:t:Box$t:t:Disk::disk"]


def test_a_child_named_after_its_parent_was_renamed_with_it() -> None:
    """`case-disk` of `case` was `box-disk` when `case` was `box`, by the engine's convention."""
    assert _earlier(parent=CASE, parents=(BOX,), name="case-disk") == ["lab::proj::t:t:Box$t:t:Disk::box-disk"]


def test_own_and_inherited_aliases_multiply() -> None:
    """A child renamed inside a renamed parent may have been either, both or neither."""
    found = _earlier(AliasSpec(name="old"), parent=CASE, parents=(BOX,))

    assert set(found) == {
        "lab::proj::t:t:Box$t:t:Disk::disk",
        "lab::proj::t:t:Case$t:t:Disk::old",
        "lab::proj::t:t:Box$t:t:Disk::old",
    }
