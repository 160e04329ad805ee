"""What a program's resource options do to its resources, as in Pulumi's engine."""

from collections.abc import Callable, Iterator

import pulumi
import pytest
from pulumi import Alias, ResourceOptions, ResourceTransformArgs, ResourceTransformResult

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import World, destroy, run
from bedplate.rehearsal.state import Op
from bedplate.rehearsal.wire import Secret, reveal
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[World]:
    """Return a world without stacks, and clear away what a test keeps."""
    yield World(simulation)
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other", "/kept"]})


def _component(name: str, opts: ResourceOptions | None = None) -> pulumi.ComponentResource:
    return pulumi.ComponentResource("t:t:Box", name, opts=opts)


def test_a_protected_resource_is_not_deleted(world: World) -> None:
    """Taking a protected resource out of the program fails, and it stays."""
    up(world, lambda: parameter("note", opts=ResourceOptions(protect=True)))

    done = run(stack(lambda: None), world)

    assert [(one.code, one.urn.rpartition("::")[2]) for one in done.failures] == [("Protected", "note")]
    assert entry(done, "note").ident == "/note"


def test_every_protected_resource_that_leaves_is_told(world: World) -> None:
    """One that another protected resource needs too: unprotecting must not take a run for each."""

    def program() -> None:
        outer = vpc("outer", "10.1.0.0/16", ResourceOptions(protect=True))
        subnet("inner", outer.id, "10.1.0.0/24", ResourceOptions(protect=True))

    up(world, program)

    done = run(stack(lambda: None), world)

    assert [one.urn.rpartition("::")[2] for one in done.failures] == ["inner", "outer"]


def test_a_protected_resource_is_not_replaced(world: World) -> None:
    """A replacement would delete it, so it is refused and says which input wants it."""
    kept = ResourceOptions(protect=True, replace_on_changes=["value"])
    up(world, lambda: parameter("note", "1", kept))

    done = run(stack(lambda: parameter("note", "2", kept)), world)

    assert [(one.code, "value" in one.message) for one in done.failures] == [("ProtectedInPlace", True)]


def test_a_resource_can_be_unprotected_and_replaced_at_once(world: World) -> None:
    """The engine allows it, since the program says both."""
    up(world, lambda: parameter("note", "1", ResourceOptions(protect=True)))

    done = up(world, lambda: parameter("note", "2", ResourceOptions(replace_on_changes=["value"])))

    assert changes(done) == {"note": "delete-replaced replace create-replacement"}


def test_a_protected_dependent_keeps_what_it_needs_from_going_first(world: World) -> None:
    """Nothing at all is deleted where one of the resources that would have to go is protected."""

    def program(block: str) -> None:
        outer = vpc("outer", f"{block}.0.0/16", ResourceOptions(delete_before_replace=True))
        subnet("plain", outer.id, f"{block}.1.0/24")
        subnet("inner", outer.id, f"{block}.0.0/24", ResourceOptions(protect=True))

    up(world, lambda: program("10.1"))

    done = run(stack(lambda: program("10.2")), world)

    assert done.failures[0].code == "ProtectedInPlace"
    assert changes(done) == {}


def test_destruction_keeps_what_is_protected_and_what_that_needs(world: World) -> None:
    """The state that is left holds the protected resource and what it depends on, and nothing else."""

    def program() -> None:
        note = parameter("note")
        parameter("other", note.value)
        parameter("kept", note.value, ResourceOptions(protect=True))

    up(world, program)

    done = destroy(stack(program), world)

    assert changes(done) == {"other": "delete"}
    assert {one.name for one in done.snapshot.entries.values() if one.is_in_cloud} == {"note", "kept"}


@pytest.mark.parametrize(("protect", "left"), [(True, {"told": "once"}), (False, {})])
def test_a_stack_tells_its_exports_for_as_long_as_it_stands(world: World, *, protect: bool, left: object) -> None:
    """Exports outlive a destruction that leaves something, as in the engine's state, and go with the last resource."""

    def program() -> None:
        parameter("held" if protect else "free", opts=ResourceOptions(protect=protect))
        pulumi.export("told", "once")

    up(world, program)

    done = destroy(stack(program), world)

    assert done.snapshot.exports == left


def test_a_retained_resource_is_forgotten_and_lives_on(world: World) -> None:
    """Its deletion is a step of the state alone."""
    up(world, lambda: parameter("note", opts=ResourceOptions(retain_on_delete=True)))

    done = up(world, lambda: None)

    assert changes(done) == {"note": "delete"}
    assert world.simulation.call("ssm", "us-west-2", "get_parameter", {"Name": "/note"})["Parameter"]


def test_an_ignored_change_is_none(world: World) -> None:
    """What the program ignores stays as it was made; the rest of the input still counts."""
    opts = ResourceOptions(ignore_changes=["value", "tags.owner"])
    up(world, lambda: parameter("note", "1", opts, tags={"owner": "a", "v": "1"}))

    assert changes(up(world, lambda: parameter("note", "2", opts, tags={"owner": "b", "v": "1"}))) == {}
    assert changes(up(world, lambda: parameter("note", "2", opts, tags={"owner": "b", "v": "2"}))) == {"note": "update"}


def test_a_replacement_ignores_nothing(world: World) -> None:
    """A new resource is made as the program has it, as the engine does: there is nothing to keep."""
    opts = ResourceOptions(ignore_changes=["value"], replace_on_changes=["tags"])
    up(world, lambda: parameter("note", "1", opts, tags={"v": "1"}))

    done = up(world, lambda: parameter("note", "2", opts, tags={"v": "2"}))

    assert reveal(entry(done, "note").inputs["value"]) == "2"


def test_what_goes_with_another_is_not_deleted_by_itself(world: World) -> None:
    """A resource that dies with another costs no call when both go."""

    def program() -> None:
        note = parameter("note")
        parameter("other", opts=ResourceOptions(deleted_with=note))

    up(world, program)
    calls = world.simulation.calls

    done = up(world, lambda: None)

    assert changes(done) == {"other": "delete", "note": "delete"}
    assert world.simulation.calls - calls == 1


def test_an_explicit_dependency_orders_creation_and_deletion(world: World) -> None:
    """`depends_on` counts like the use of an output."""

    def program() -> None:
        parameter("note", opts=ResourceOptions(depends_on=[parameter("other")]))

    assert list(changes(up(world, program))) == ["other", "note"]
    assert list(changes(up(world, lambda: None))) == ["note", "other"]


def _aliased(name: str, alias: Alias | str, parent: pulumi.Resource | None = None) -> None:
    parameter(name, opts=ResourceOptions(aliases=[alias], parent=parent), path="/note")


ALIASES = {
    "name": (lambda: parameter("note"), lambda: _aliased("other", Alias(name="note"))),
    "urn": (
        lambda: parameter("note"),
        lambda: _aliased("other", "urn:pulumi:lab::lab::aws:ssm/parameter:Parameter::note"),
    ),
    "no parent": (
        lambda: parameter("note"),
        lambda: _aliased("note", Alias(parent=pulumi.ROOT_STACK_RESOURCE), _component("box")),
    ),
    "parent renamed": (
        lambda: parameter("note", opts=ResourceOptions(parent=_component("box"))),
        lambda: parameter(
            "note", opts=ResourceOptions(parent=_component("case", ResourceOptions(aliases=[Alias(name="box")])))
        ),
    ),
}


@pytest.mark.parametrize(("before", "after"), ALIASES.values(), ids=ALIASES.keys())
def test_an_alias_keeps_a_resource(world: World, before: Callable[[], object], after: Callable[[], object]) -> None:
    """A resource known by an earlier identity is the same resource, and its state takes the new one."""
    up(world, before)

    done = up(world, after)

    assert changes(done) == {}
    assert sum(one.is_in_cloud for one in done.snapshot.entries.values()) == 1


def test_a_renamed_dependency_still_counts(world: World) -> None:
    """What depended on a resource under its earlier name follows when that one goes first."""

    def program(name: str, block: str, *was: str) -> None:
        opts = ResourceOptions(delete_before_replace=True, aliases=[Alias(name=one) for one in was])
        subnet("inner", vpc(name, f"{block}.0.0/16", opts).id, f"{block}.0.0/24")

    up(world, lambda: program("before", "10.1"))

    done = up(world, lambda: program("after", "10.2", "before"))

    assert changes(done)["inner"] == "delete-replaced replace create-replacement"


def _shouting(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    if args.type_ != "aws:ssm/parameter:Parameter":
        return None
    return ResourceTransformResult({**args.props, "value": "LOUD"}, args.opts)


def _guarding(args: ResourceTransformArgs) -> ResourceTransformResult:
    return ResourceTransformResult(args.props, ResourceOptions.merge(args.opts, ResourceOptions(protect=True)))


def _in_stack() -> None:
    pulumi.runtime.register_resource_transform(_shouting)
    parameter("note")


def _in_component() -> None:
    box = _component("box", ResourceOptions(transforms=[_shouting]))
    parameter("note", opts=ResourceOptions(parent=_component("inside", ResourceOptions(parent=box))))


TRANSFORMED = {
    "resource": lambda: parameter("note", opts=ResourceOptions(transforms=[_shouting])),
    "component": _in_component,
    "stack": _in_stack,
}


@pytest.mark.parametrize("program", TRANSFORMED.values(), ids=TRANSFORMED.keys())
def test_a_transform_changes_what_is_registered(world: World, program: Callable[[], object]) -> None:
    """A transform of the resource, of a component above it or of the stack has its way with the inputs."""
    done = up(world, program)

    assert entry(done, "note").inputs["value"] == "LOUD"


def test_a_transform_changes_options(world: World) -> None:
    """What a transform sets, such as protection, is as if the program had said it."""
    done = up(world, lambda: parameter("note", opts=ResourceOptions(transforms=[_guarding])))

    assert entry(done, "note").protect


def test_outputs_the_program_calls_secret_are(world: World) -> None:
    """An additional secret output is one in the state and in what takes it."""

    def program() -> None:
        note = parameter("note", opts=ResourceOptions(additional_secret_outputs=["arn"]))
        parameter("other", note.arn)

    done = up(world, program)

    assert isinstance(entry(done, "note").outputs["arn"], Secret)
    assert isinstance(entry(done, "other").inputs["value"], Secret)


def test_same_steps_keep_new_options(world: World) -> None:
    """Protection that is added or taken away is no step, and counts from then on."""
    up(world, lambda: parameter("note", opts=ResourceOptions(protect=True)))

    done = up(world, lambda: parameter("note"))

    assert not entry(done, "note").protect
    assert {step.op for step in done.steps} == {Op.SAME}
