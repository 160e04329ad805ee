"""What becomes of resources between one run of a program and the next, as Pulumi's engine would have it."""

from collections.abc import Iterator

import pulumi
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import World, destroy
from bedplate.rehearsal.step import Op
from tests.support.programs import changes, entry, parameter, stack, subnet, up, vpc


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
