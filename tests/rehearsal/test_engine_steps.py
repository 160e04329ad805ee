"""Tests of diff and steps: a program runs twice, and the second run takes the steps of Pulumi's engine.

The last part tests the functions behind that: order of entries, difference of inputs, aliases.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any, Never

import pulumi
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.change import Difference, creation_order, deletion_order, dependents, difference, with_required
from bedplate.rehearsal.kind import ResourceKind, replaces, updates
from bedplate.rehearsal.registration import AliasSpec, Registration, earlier_urns
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import SharedState, destroy
from bedplate.rehearsal.state import Entry, Op, child_urn
from bedplate.rehearsal.wire import UNKNOWN, Secret
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[SharedState]:
    """Return a world without stacks; destroy the stack of the test at the end."""
    world = SharedState(simulation)
    yield world
    destroy(stack(lambda: None), world)


def _nested(block: str) -> None:
    outer = vpc("outer", block)
    subnet("inner", outer.id, block.replace("/16", "/24"))


def _deleted_first(block: str) -> None:
    outer = vpc("outer", block, ResourceOptions(delete_before_replace=True))
    inner = subnet("inner", outer.id, "10.1.0.0/24" if block == "10.1.0.0/16" else "10.2.0.0/24")
    parameter("note", inner.id)


def test_the_first_run_creates_dependencies_first(world: SharedState) -> None:
    """A resource is created after the resources whose outputs it takes."""
    result = up(world, lambda: _nested("10.1.0.0/16"))

    assert list(changes(result).items()) == [("outer", "create"), ("inner", "create")]


def test_a_second_run_changes_nothing(world: SharedState) -> None:
    """A second run of an unchanged program takes only `same` steps."""
    up(world, lambda: _nested("10.1.0.0/16"))

    result = up(world, lambda: _nested("10.1.0.0/16"))

    assert {step.op for step in result.steps} == {Op.SAME}


def test_an_update_keeps_the_resource(world: SharedState) -> None:
    """A resource that is updated in place keeps its id, and its dependents do not change."""
    before = up(world, lambda: subnet("inner", vpc("outer").id, "10.1.0.0/24"))

    result = up(world, lambda: subnet("inner", vpc("outer", tags={"v": "2"}).id, "10.1.0.0/24"))

    assert changes(result) == {"outer": "update"}
    assert entry(result, "outer").ident == entry(before, "outer").ident


def test_a_step_names_the_paths_of_changed_values(world: SharedState) -> None:
    """An update step holds the paths of the changed values inside an input."""
    up(world, lambda: vpc("outer", tags={"same": "1", "v": "1"}))

    result = up(world, lambda: vpc("outer", tags={"same": "1", "v": "2"}))

    (step,) = [step for step in result.steps if step.is_change]
    assert (step.keys, step.paths) == (("tags",), ("tags.v",))


def test_replacements_are_created_before_the_old_are_deleted(world: SharedState) -> None:
    """The engine creates the replacements, updates the dependents, then deletes the old ones in reverse order."""
    up(world, lambda: _nested("10.1.0.0/16"))

    result = up(world, lambda: _nested("10.2.0.0/16"))

    cycle = "create-replacement replace delete-replaced"
    assert changes(result) == {"outer": cycle, "inner": cycle}
    assert [step.urn[-5:] for step in result.steps[-2:]] == ["inner", "outer"]


def test_deletion_first_includes_the_dependents_it_replaces(world: SharedState) -> None:
    """Before a resource is deleted first, the dependents that its replacement replaces are deleted; others stay."""
    up(world, lambda: _deleted_first("10.1.0.0/16"))

    result = up(world, lambda: _deleted_first("10.2.0.0/16"))

    cycle = "delete-replaced replace create-replacement"
    assert changes(result) == {"inner": cycle, "outer": cycle, "note": "update"}


def test_a_replaced_dependent_names_the_reason_in_its_create_step(world: SharedState) -> None:
    """As in the engine, only the create-replacement step of a dependent names the input that forced it."""
    up(world, lambda: _deleted_first("10.1.0.0/16"))

    result = up(world, lambda: _deleted_first("10.2.0.0/16"))

    steps = [(step.op, step.keys, step.replace_keys) for step in result.steps if step.urn.endswith("inner")]
    assert steps == [(Op.DELETE_REPLACED, (), ()), (Op.REPLACE, (), ()), (Op.CREATE_REPLACEMENT, (), ("vpcId",))]


def test_a_resource_registered_before_is_not_replaced_as_dependent(world: SharedState) -> None:
    """A resource that no longer depends on a resource deleted first does not change."""

    def before() -> None:
        outer = vpc("outer", "10.1.0.0/16", ResourceOptions(delete_before_replace=True))
        parameter("note", "v", ResourceOptions(depends_on=[outer]))

    def after() -> None:
        note = parameter("note", "v")
        vpc("outer", "10.2.0.0/16", ResourceOptions(delete_before_replace=True, depends_on=[note]))

    up(world, before)

    assert set(changes(up(world, after))) == {"outer"}


def test_a_resource_with_a_fixed_name_is_deleted_first(world: SharedState) -> None:
    """Two resources cannot have the same name at the same time, so the old one is deleted first."""
    up(world, lambda: parameter("note", key_id=None))

    result = up(world, lambda: parameter("note", opts=ResourceOptions(replace_on_changes=["value"]), value="other"))

    assert changes(result) == {"note": "delete-replaced replace create-replacement"}


def test_undeclared_resources_are_deleted(world: SharedState) -> None:
    """Dependents are deleted before their dependencies."""
    up(world, lambda: _nested("10.1.0.0/16"))

    result = up(world, lambda: None)

    assert list(changes(result).items()) == [("inner", "delete"), ("outer", "delete")]


def test_an_undeclared_dependent_is_deleted_before_a_replaced_resource(world: SharedState) -> None:
    """All deletions of a run follow one order: the old subnet before the old VPC that holds it."""
    up(world, lambda: _nested("10.1.0.0/16"))

    result = up(world, lambda: vpc("outer", "10.2.0.0/16"))

    assert [step.op for step in result.steps[-2:]] == [Op.DELETE, Op.DELETE_REPLACED]


def test_destroy_leaves_nothing(world: SharedState) -> None:
    """A stack without protected resources has an empty state after destroy."""
    up(world, lambda: _nested("10.1.0.0/16"))

    result = destroy(stack(lambda: None), world)

    assert changes(result) == {"inner": "delete", "outer": "delete"}
    assert not result.snapshot.entries


def test_the_urn_holds_the_types_of_all_parents(world: SharedState) -> None:
    """A URN holds the types of all parent components, and only the resource's own name."""

    def program() -> None:
        outer = pulumi.ComponentResource("t:t:Outer", "o")
        inner = pulumi.ComponentResource("t:t:Inner", "i", opts=ResourceOptions(parent=outer))
        parameter("deep", opts=ResourceOptions(parent=inner))

    result = up(world, program)

    assert entry(result, "deep").urn == "urn:pulumi:lab::lab::t:t:Outer$t:t:Inner$aws:ssm/parameter:Parameter::deep"


def test_a_component_with_other_inputs_takes_an_update_step(world: SharedState) -> None:
    """The step of a component is an update if its inputs are different."""

    def program(size: int) -> None:
        pulumi.ComponentResource("t:t:Outer", "o", {"size": size})

    up(world, lambda: program(1))

    result = up(world, lambda: program(2))

    assert [step.op for step in result.steps if step.urn.endswith("Outer::o")] == [Op.UPDATE]


def test_a_changed_output_updates_its_dependents_in_the_preview(world: SharedState) -> None:
    """A preview lists the dependents of an output that only the update computes."""

    def program(value: str) -> None:
        note = parameter("note", value)
        parameter("copy", note.version.apply(str))

    up(world, lambda: program("1"))

    assert changes(up(world, lambda: program("2"))) == {"note": "update", "copy": "update"}


def test_another_region_replaces_a_resource(world: SharedState) -> None:
    """Another region replaces the resource; the explicit region of its provider is no change."""
    up(world, lambda: parameter("note"))

    assert changes(up(world, lambda: parameter("note", region="us-west-2"))) == {}
    assert changes(up(world, lambda: parameter("note", region="us-east-1"))) == {
        "note": "delete-replaced replace create-replacement"
    }


def test_an_empty_collection_is_no_change(world: SharedState) -> None:
    """The provider treats no value and an empty collection as equal."""
    up(world, lambda: vpc("outer"))

    assert changes(up(world, lambda: vpc("outer", tags={}))) == {}


def _entry(name: str, *dependencies: str) -> Entry:
    urns = tuple(map(_urn, dependencies))
    return Entry(urn=_urn(name), custom=True, inputs={}, outputs={}, dependencies=urns)


def _urn(name: str) -> str:
    return f"urn:pulumi:s::p::t:t:T::{name}"


def _names(entries: tuple[Entry, ...]) -> str:
    return "".join(entry.name for entry in entries)


CHAIN = (_entry("a"), _entry("b", "a"), _entry("c", "b"))


@pytest.mark.parametrize("entries", list(permutations(CHAIN)))
@pytest.mark.parametrize(("order", "expected"), [(deletion_order, "cba"), (creation_order, "abc")])
def test_dependencies_decide_the_order(
    entries: tuple[Entry, ...], order: Callable[[tuple[Entry, ...]], tuple[Entry, ...]], expected: str
) -> None:
    """Dependents are deleted first and created last, in any order of the state."""
    assert _names(order(entries)) == expected


REQUIREMENTS = {
    "parent": replace(_entry("b"), parent=_urn("a")),
    "deleted with": replace(_entry("b"), deleted_with=_urn("a")),
    "provider": replace(_entry("b"), provider=f"{_urn('a')}::id"),
}


@pytest.mark.parametrize("entry", REQUIREMENTS.values(), ids=REQUIREMENTS.keys())
def test_each_requirement_decides_the_order(entry: Entry) -> None:
    """An entry is deleted before its parent, its `deleted_with` and its provider."""
    assert _names(deletion_order([_entry("a"), entry])) == "ba"


def test_a_dependency_cycle_is_deleted() -> None:
    """Entries of different runs may depend on each other in a cycle; all are deleted."""
    assert sorted(_names(deletion_order([_entry("a", "b"), _entry("b", "a")]))) == ["a", "b"]


def test_dependents_include_indirect_ones() -> None:
    """The dependents of a dependent count, unless it is left out."""
    entries = {entry.urn: entry for entry in CHAIN}

    assert _names(dependents(_urn("a"), entries)) == "bc"
    assert _names(dependents(_urn("a"), entries, {_urn("b")})) == ""


def test_required_entries_are_direct_and_indirect() -> None:
    """A kept resource keeps all that it requires, and nothing else."""
    entries = {entry.urn: entry for entry in (*CHAIN, _entry("d", "c"))}

    assert with_required([_urn("c")], entries) == {_urn("a"), _urn("b"), _urn("c")}


def _never(*_: object) -> Never:
    raise AssertionError


KIND = ResourceKind(
    token="t:t:T",  # noqa: S106  # a type token, not a password
    inputs=updates("size", "tags", "rules", "zones") | replaces("block"),
    computed=frozenset({"size"}),
    sets=frozenset({"zones"}),
    create=_never,
    read=_never,
    delete=_never,
)

SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "equal": ({"tags": {"a": 1}}, {"tags": {"a": 1}}),
    "a set in another order": ({"zones": ["a", "b"]}, {"zones": ["b", "a"]}),
    "a set of mappings": ({"zones": [{"n": 1}, {"n": 2}]}, {"zones": [{"n": 2}, {"n": 1}]}),
    "computed and left out": ({"size": 3}, {}),
    "none and empty": ({"tags": {}}, {}),
    "empty string and none": ({"block": ""}, {"block": None}),
    "now a secret": ({"block": "a"}, {"block": Secret("a")}),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME.keys())
def test_equal_inputs_have_no_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Values that the provider treats as equal are no change."""
    assert difference(KIND, old, new) == Difference()


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any], Difference]] = {
    "nested": ({"tags": {"a": 1, "b": 1}}, {"tags": {"a": 2, "b": 1}}, Difference(("tags.a",), ("tags",))),
    "quoted": ({"tags": {}}, {"tags": {"a b": 1}}, Difference(('tags["a b"]',), ("tags",))),
    "item": ({"rules": [{"p": 1}]}, {"rules": [{"p": 2}]}, Difference(("rules[0].p",), ("rules",))),
    "longer": ({"rules": [1]}, {"rules": [1, 2]}, Difference(("rules[1]",), ("rules",))),
    "order of a list": (
        {"rules": [1, 2]},
        {"rules": [2, 1]},
        Difference(("rules[0]", "rules[1]"), ("rules",)),
    ),
    "removed": ({"tags": {"a": 1}}, {}, Difference(("tags",), ("tags",))),
    "forcing": ({"block": "a"}, {"block": "b"}, Difference(("block",), ("block",), ("block",))),
    "region": ({"region": "a"}, {"region": "b"}, Difference(("region",), ("region",), ("region",))),
    "unknown": ({"block": "a"}, {"block": UNKNOWN}, Difference(("block",), ("block",), ("block",))),
    "unknown in a set": ({"zones": ["a"]}, {"zones": [UNKNOWN]}, Difference(("zones[0]",), ("zones",))),
    "secret": ({"size": Secret(1)}, {"size": Secret(2)}, Difference(("size",), ("size",))),
    "false is not a missing value": ({"size": False}, {"size": True}, Difference(("size",), ("size",))),
}


@pytest.mark.parametrize(("old", "new", "expected"), CHANGED.values(), ids=CHANGED.keys())
def test_a_difference_names_paths_and_inputs(old: dict[str, Any], new: dict[str, Any], expected: Difference) -> None:
    """A difference holds the changed paths, their inputs, and the inputs that force a replacement."""
    assert difference(KIND, old, new) == expected


@pytest.mark.parametrize(
    ("pattern", "forced"), [("tags", ("tags",)), ("tags.a", ("tags",)), ("tags.b", ()), ("*", ("tags",))]
)
def test_replace_on_changes_forces_a_replacement(pattern: str, forced: tuple[str, ...]) -> None:
    """A path in `replace_on_changes` forces a replacement if the changed path matches."""
    diff = difference(KIND, {"tags": {"a": 1}}, {"tags": {"a": 2}}, (pattern,))

    assert diff.replace_keys == forced


STACK = "urn:pulumi:lab::proj::pulumi:pulumi:Stack::proj-lab"
BOX = "urn:pulumi:lab::proj::t:t:Box::box"
CASE = "urn:pulumi:lab::proj::t:t:Case::case"


def _earlier(*aliases: AliasSpec, parent: str = STACK, parents: tuple[str, ...] = (), name: str = "disk") -> list[str]:
    registration = Registration(
        type="t:t:Disk", name=name, parent=parent, custom=True, inputs={}, property_dependencies={}, aliases=aliases
    )
    urn = child_urn("lab", "proj", parent, registration.type, name)
    return [earlier.removeprefix("urn:pulumi:") for earlier in earlier_urns(registration, urn, parents)]


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
def test_an_alias_replaces_parts_of_the_urn(alias: AliasSpec, parent: str, urn: str) -> None:
    """An alias takes missing parts from the present URN."""
    assert _earlier(alias, parent=parent) == [urn]


def test_a_resource_without_aliases_has_no_earlier_urn() -> None:
    """The present URN is not an earlier one."""
    assert _earlier() == []


def test_a_child_has_the_earlier_urns_of_its_parent() -> None:
    """An earlier URN of a child holds the earlier types of its parent."""
    assert _earlier(parent=CASE, parents=(BOX,)) == ["lab::proj::t:t:Box$t:t:Disk::disk"]


def test_a_child_named_after_its_parent_has_its_earlier_name() -> None:
    """`case-disk` of `case` was `box-disk` when `case` was `box`, by the engine's convention."""
    assert _earlier(parent=CASE, parents=(BOX,), name="case-disk") == ["lab::proj::t:t:Box$t:t:Disk::box-disk"]


def test_aliases_of_child_and_parent_combine() -> None:
    """A renamed child of a renamed parent has an earlier URN for each combination."""
    urns = _earlier(AliasSpec(name="old"), parent=CASE, parents=(BOX,))

    assert set(urns) == {
        "lab::proj::t:t:Box$t:t:Disk::disk",
        "lab::proj::t:t:Case$t:t:Disk::old",
        "lab::proj::t:t:Box$t:t:Disk::old",
    }
