"""What becomes of resources between one run of a program and the next, as Pulumi's engine would have it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any, Never

import pulumi
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.change import Difference, closure, deletion_order, dependents, difference, making_order
from bedplate.rehearsal.kind import Kind, replaces, updates
from bedplate.rehearsal.registration import AliasSpec, Registration, earlier_urns
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import World, destroy
from bedplate.rehearsal.state import Entry, Op, child
from bedplate.rehearsal.wire import UNKNOWN, Secret
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[World]:
    """Return a world without stacks, and empty the one that a test leaves."""
    world = World(simulation)
    yield world
    destroy(stack(lambda: None), world)


def _nested(block: str) -> None:
    outer = vpc("outer", block)
    subnet("inner", outer.id, block.replace("/16", "/24"))


def _first(block: str) -> None:
    outer = vpc("outer", block, ResourceOptions(delete_before_replace=True))
    inner = subnet("inner", outer.id, "10.1.0.0/24" if block == "10.1.0.0/16" else "10.2.0.0/24")
    parameter("note", inner.id)


def test_a_first_run_creates_in_the_order_of_need(world: World) -> None:
    """Nothing is made before what it takes an output of."""
    done = up(world, lambda: _nested("10.1.0.0/16"))

    assert list(changes(done).items()) == [("outer", "create"), ("inner", "create")]


def test_a_second_run_changes_nothing(world: World) -> None:
    """A program that declares what is there already takes only steps that change nothing."""
    up(world, lambda: _nested("10.1.0.0/16"))

    done = up(world, lambda: _nested("10.1.0.0/16"))

    assert {step.op for step in done.steps} == {Op.SAME}


def test_an_update_keeps_the_resource(world: World) -> None:
    """What can be changed in place keeps its id, and what depends on it is left alone."""
    before = up(world, lambda: subnet("inner", vpc("outer").id, "10.1.0.0/24"))

    done = up(world, lambda: subnet("inner", vpc("outer", tags={"v": "2"}).id, "10.1.0.0/24"))

    assert changes(done) == {"outer": "update"}
    assert entry(done, "outer").ident == entry(before, "outer").ident


def test_a_step_names_the_changed_values(world: World) -> None:
    """An update tells the paths of the values inside an input that changed."""
    up(world, lambda: vpc("outer", tags={"same": "1", "v": "1"}))

    done = up(world, lambda: vpc("outer", tags={"same": "1", "v": "2"}))

    (step,) = [step for step in done.steps if step.is_change]
    assert (step.keys, step.paths) == (("tags",), ("tags.v",))


def test_a_replacement_is_made_first_and_moves_what_depends_on_it(world: World) -> None:
    """Create first, switch the dependents over, then delete the old ones in reverse."""
    up(world, lambda: _nested("10.1.0.0/16"))

    done = up(world, lambda: _nested("10.2.0.0/16"))

    cycle = "create-replacement replace delete-replaced"
    assert changes(done) == {"outer": cycle, "inner": cycle}
    assert [step.urn[-5:] for step in done.steps[-2:]] == ["inner", "outer"]


def test_what_goes_first_takes_its_dependents_with_it(world: World) -> None:
    """A resource deleted first cannot leave behind what a new one of it would replace; others stay."""
    up(world, lambda: _first("10.1.0.0/16"))

    done = up(world, lambda: _first("10.2.0.0/16"))

    cycle = "delete-replaced replace create-replacement"
    assert changes(done) == {"inner": cycle, "outer": cycle, "note": "update"}


def test_a_dependent_that_followed_says_why_it_was_made_again(world: World) -> None:
    """As in the engine, only its new creation names the input that made it go."""
    up(world, lambda: _first("10.1.0.0/16"))

    done = up(world, lambda: _first("10.2.0.0/16"))

    found = [(step.op, step.keys, step.replace_keys) for step in done.steps if step.urn.endswith("inner")]
    assert found == [(Op.DELETE_REPLACED, (), ()), (Op.REPLACE, (), ()), (Op.CREATE_REPLACEMENT, (), ("vpcId",))]


def test_what_was_declared_already_does_not_follow(world: World) -> None:
    """A resource that no longer depends on one that goes first is left where the program put it."""

    def before() -> None:
        outer = vpc("outer", "10.1.0.0/16", ResourceOptions(delete_before_replace=True))
        parameter("note", "v", ResourceOptions(depends_on=[outer]))

    def after() -> None:
        note = parameter("note", "v")
        vpc("outer", "10.2.0.0/16", ResourceOptions(delete_before_replace=True, depends_on=[note]))

    up(world, before)

    assert set(changes(up(world, after))) == {"outer"}


def test_a_fixed_name_makes_a_resource_go_first(world: World) -> None:
    """Two resources cannot have the name that the program chose at once."""
    up(world, lambda: parameter("note", key_id=None))

    done = up(world, lambda: parameter("note", opts=ResourceOptions(replace_on_changes=["value"]), value="other"))

    assert changes(done) == {"note": "delete-replaced replace create-replacement"}


def test_what_is_no_longer_declared_is_deleted(world: World) -> None:
    """Dependents go before what they depend on."""
    up(world, lambda: _nested("10.1.0.0/16"))

    done = up(world, lambda: None)

    assert list(changes(done).items()) == [("inner", "delete"), ("outer", "delete")]


def test_a_dependent_no_longer_declared_goes_before_what_was_replaced(world: World) -> None:
    """Deletions of both sorts stand in one order: the old subnet before the old VPC it is in."""
    up(world, lambda: _nested("10.1.0.0/16"))

    done = up(world, lambda: vpc("outer", "10.2.0.0/16"))

    assert [step.op for step in done.steps[-2:]] == [Op.DELETE, Op.DELETE_REPLACED]


def test_destruction_leaves_nothing(world: World) -> None:
    """A stack without protected resources ends with an empty state."""
    up(world, lambda: _nested("10.1.0.0/16"))

    done = destroy(stack(lambda: None), world)

    assert changes(done) == {"inner": "delete", "outer": "delete"}
    assert not done.snapshot.entries


def test_parents_two_components_deep_make_the_urn(world: World) -> None:
    """A resource's URN holds the types of all components above it, and its name alone."""

    def program() -> None:
        outer = pulumi.ComponentResource("t:t:Outer", "o")
        inner = pulumi.ComponentResource("t:t:Inner", "i", opts=ResourceOptions(parent=outer))
        parameter("deep", opts=ResourceOptions(parent=inner))

    done = up(world, program)

    assert entry(done, "deep").urn == "urn:pulumi:lab::lab::t:t:Outer$t:t:Inner$aws:ssm/parameter:Parameter::deep"


def test_a_component_changes_with_its_inputs(world: World) -> None:
    """A component's own step says whether what it was given differs."""

    def program(size: int) -> None:
        pulumi.ComponentResource("t:t:Outer", "o", {"size": size})

    up(world, lambda: program(1))

    done = up(world, lambda: program(2))

    assert [step.op for step in done.steps if step.urn.endswith("Outer::o")] == [Op.UPDATE]


def test_an_update_that_moves_an_output_moves_what_takes_it(world: World) -> None:
    """A preview tells of the dependents of an output that only the update will know."""

    def program(value: str) -> None:
        note = parameter("note", value)
        parameter("copy", note.version.apply(str))

    up(world, lambda: program("1"))

    assert changes(up(world, lambda: program("2"))) == {"note": "update", "copy": "update"}


def test_a_resource_does_not_move_between_regions(world: World) -> None:
    """Another region needs another resource; the provider's own region written out is no change."""
    up(world, lambda: parameter("note"))

    assert changes(up(world, lambda: parameter("note", region="us-west-2"))) == {}
    assert changes(up(world, lambda: parameter("note", region="us-east-1"))) == {
        "note": "delete-replaced replace create-replacement"
    }


def test_an_empty_list_is_no_change(world: World) -> None:
    """The provider makes no difference between nothing and an empty collection."""
    up(world, lambda: vpc("outer"))

    assert changes(up(world, lambda: vpc("outer", tags={}))) == {}


def _entry(name: str, *dependencies: str) -> Entry:
    needs = tuple(map(_urn, dependencies))
    return Entry(urn=_urn(name), custom=True, inputs={}, outputs={}, dependencies=needs)


def _urn(name: str) -> str:
    return f"urn:pulumi:s::p::t:t:T::{name}"


def _names(entries: tuple[Entry, ...]) -> str:
    return "".join(entry.name for entry in entries)


CHAIN = (_entry("a"), _entry("b", "a"), _entry("c", "b"))


@pytest.mark.parametrize("entries", list(permutations(CHAIN)))
@pytest.mark.parametrize(("order", "wanted"), [(deletion_order, "cba"), (making_order, "abc")])
def test_need_decides_the_order(
    entries: tuple[Entry, ...], order: Callable[[tuple[Entry, ...]], tuple[Entry, ...]], wanted: str
) -> None:
    """However a state lists them, dependents are deleted first and made last."""
    assert _names(order(entries)) == wanted


NEEDING = {
    "parent": replace(_entry("b"), parent=_urn("a")),
    "deleted with": replace(_entry("b"), deleted_with=_urn("a")),
    "provider": replace(_entry("b"), provider=f"{_urn('a')}::id"),
}


@pytest.mark.parametrize("entry", NEEDING.values(), ids=NEEDING.keys())
def test_every_kind_of_need_counts(entry: Entry) -> None:
    """A child goes before its parent, what goes with another before that one, what a provider made before it."""
    assert _names(deletion_order([_entry("a"), entry])) == "ba"


def test_a_circle_is_not_waited_for() -> None:
    """Entries of different runs may need each other; all are still deleted."""
    assert sorted(_names(deletion_order([_entry("a", "b"), _entry("b", "a")]))) == ["a", "b"]


def test_dependents_are_found_through_others() -> None:
    """What depends on a dependent depends on its root."""
    entries = {entry.urn: entry for entry in CHAIN}

    assert _names(dependents(_urn("a"), entries)) == "bc"
    assert _names(dependents(_urn("a"), entries, {_urn("b")})) == ""


def test_what_must_live_is_kept_with_what_it_needs() -> None:
    """To keep one resource is to keep all that it stands on, and nothing else."""
    entries = {entry.urn: entry for entry in (*CHAIN, _entry("d", "c"))}

    assert closure([_urn("c")], entries) == {_urn("a"), _urn("b"), _urn("c")}


def _never(*_: object) -> Never:
    raise AssertionError


KIND = Kind(
    token="t:t:T",  # noqa: S106  # a type, no password
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
    "no text and none": ({"block": ""}, {"block": None}),
    "now a secret": ({"block": "a"}, {"block": Secret("a")}),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME.keys())
def test_no_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    """What the provider takes for the same is no change."""
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
    "false is not nothing": ({"size": False}, {"size": True}, Difference(("size",), ("size",))),
}


@pytest.mark.parametrize(("old", "new", "wanted"), CHANGED.values(), ids=CHANGED.keys())
def test_a_difference(old: dict[str, Any], new: dict[str, Any], wanted: Difference) -> None:
    """A change is told by path and by input, and whether it needs a new resource."""
    assert difference(KIND, old, new) == wanted


@pytest.mark.parametrize(
    ("pattern", "forced"), [("tags", ("tags",)), ("tags.a", ("tags",)), ("tags.b", ()), ("*", ("tags",))]
)
def test_a_program_can_want_a_replacement(pattern: str, forced: tuple[str, ...]) -> None:
    """`replace_on_changes` makes a change force a new resource where its path matches."""
    found = difference(KIND, {"tags": {"a": 1}}, {"tags": {"a": 2}}, (pattern,))

    assert found.replace_keys == forced


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
