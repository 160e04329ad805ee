"""Tests of resource options: protect, retain, ignore_changes, deleted_with, aliases, secret outputs."""

from collections.abc import Callable, Iterator

import pulumi
import pytest
from pulumi import Alias, ResourceOptions

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import SharedState, destroy, run
from bedplate.rehearsal.state import Op
from bedplate.rehearsal.wire import Secret, reveal
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[SharedState]:
    """Return a world without stacks; delete the parameters that a test keeps."""
    yield SharedState(simulation)
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other", "/kept"]})


def _component(name: str, opts: ResourceOptions | None = None) -> pulumi.ComponentResource:
    return pulumi.ComponentResource("t:t:Box", name, opts=opts)


def test_a_protected_resource_is_not_deleted(world: SharedState) -> None:
    """A run without a protected resource fails, and the resource stays."""
    up(world, lambda: parameter("note", opts=ResourceOptions(protect=True)))

    result = run(stack(lambda: None), world)

    assert [(failure.code, failure.urn.rpartition("::")[2]) for failure in result.failures] == [("Protected", "note")]
    assert entry(result, "note").ident == "/note"


def test_all_undeclared_protected_resources_are_reported(world: SharedState) -> None:
    """A protected resource is reported even if another protected one requires it: one run shows them all."""

    def program() -> None:
        outer = vpc("outer", "10.1.0.0/16", ResourceOptions(protect=True))
        subnet("inner", outer.id, "10.1.0.0/24", ResourceOptions(protect=True))

    up(world, program)

    result = run(stack(lambda: None), world)

    assert [failure.urn.rpartition("::")[2] for failure in result.failures] == ["inner", "outer"]


def test_a_protected_resource_is_not_replaced(world: SharedState) -> None:
    """The run fails and names the input that forces the replacement."""
    kept = ResourceOptions(protect=True, replace_on_changes=["value"])
    up(world, lambda: parameter("note", "1", kept))

    result = run(stack(lambda: parameter("note", "2", kept)), world)

    assert [(failure.code, "value" in failure.message) for failure in result.failures] == [("ProtectedInPlace", True)]


def test_a_resource_can_be_unprotected_and_replaced_in_one_run(world: SharedState) -> None:
    """As in the engine, a run may remove the protection and replace the resource."""
    up(world, lambda: parameter("note", "1", ResourceOptions(protect=True)))

    result = up(world, lambda: parameter("note", "2", ResourceOptions(replace_on_changes=["value"])))

    assert changes(result) == {"note": "delete-replaced replace create-replacement"}


def test_a_protected_dependent_prevents_deletion_first(world: SharedState) -> None:
    """If a dependent that would be deleted is protected, nothing is deleted."""

    def program(block: str) -> None:
        outer = vpc("outer", f"{block}.0.0/16", ResourceOptions(delete_before_replace=True))
        subnet("plain", outer.id, f"{block}.1.0/24")
        subnet("inner", outer.id, f"{block}.0.0/24", ResourceOptions(protect=True))

    up(world, lambda: program("10.1"))

    result = run(stack(lambda: program("10.2")), world)

    assert result.failures[0].code == "ProtectedInPlace"
    assert changes(result) == {}


def test_destroy_keeps_protected_resources_and_their_dependencies(world: SharedState) -> None:
    """The state after destroy holds the protected resource and its dependencies, and nothing else."""

    def program() -> None:
        note = parameter("note")
        parameter("other", note.value)
        parameter("kept", note.value, ResourceOptions(protect=True))

    up(world, program)

    result = destroy(stack(program), world)

    assert changes(result) == {"other": "delete"}
    assert {left.name for left in result.snapshot.entries.values() if left.is_in_cloud} == {"note", "kept"}


@pytest.mark.parametrize(("protect", "exports"), [(True, {"zone": "internal"}), (False, {})])
def test_exports_end_with_the_last_resource(world: SharedState, *, protect: bool, exports: object) -> None:
    """As in the engine, a stack keeps its exports if destroy leaves a resource."""

    def program() -> None:
        parameter("kept" if protect else "free", opts=ResourceOptions(protect=protect))
        pulumi.export("zone", "internal")

    up(world, program)

    result = destroy(stack(program), world)

    assert result.snapshot.exports == exports


def test_a_retained_resource_is_only_removed_from_the_state(world: SharedState) -> None:
    """The deletion of a retained resource makes no call to AWS."""
    up(world, lambda: parameter("note", opts=ResourceOptions(retain_on_delete=True)))

    result = up(world, lambda: None)

    assert changes(result) == {"note": "delete"}
    assert world.simulation.call("ssm", "us-west-2", "get_parameter", {"Name": "/note"})["Parameter"]


def test_an_ignored_change_is_no_change(world: SharedState) -> None:
    """Paths in `ignore_changes` keep their old values; the other values of the input count."""
    opts = ResourceOptions(ignore_changes=["value", "tags.owner"])
    up(world, lambda: parameter("note", "1", opts, tags={"owner": "a", "v": "1"}))

    assert changes(up(world, lambda: parameter("note", "2", opts, tags={"owner": "b", "v": "1"}))) == {}
    assert changes(up(world, lambda: parameter("note", "2", opts, tags={"owner": "b", "v": "2"}))) == {"note": "update"}


def test_a_replacement_ignores_nothing(world: SharedState) -> None:
    """As in the engine, a replacement has all values of the program."""
    opts = ResourceOptions(ignore_changes=["value"], replace_on_changes=["tags"])
    up(world, lambda: parameter("note", "1", opts, tags={"v": "1"}))

    result = up(world, lambda: parameter("note", "2", opts, tags={"v": "2"}))

    assert reveal(entry(result, "note").inputs["value"]) == "2"


def test_deleted_with_saves_the_deletion(world: SharedState) -> None:
    """If a resource and its `deleted_with` are deleted, only the latter needs a call."""

    def program() -> None:
        note = parameter("note")
        parameter("other", opts=ResourceOptions(deleted_with=note))

    up(world, program)
    calls = world.simulation.calls

    result = up(world, lambda: None)

    assert changes(result) == {"other": "delete", "note": "delete"}
    assert world.simulation.calls - calls == 1


def test_an_explicit_dependency_orders_creation_and_deletion(world: SharedState) -> None:
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
def test_an_alias_keeps_a_resource(
    world: SharedState, before: Callable[[], object], after: Callable[[], object]
) -> None:
    """A resource with an alias for its earlier URN is the same resource; the state has the present URN."""
    up(world, before)

    result = up(world, after)

    assert changes(result) == {}
    assert sum(left.is_in_cloud for left in result.snapshot.entries.values()) == 1


def test_dependents_follow_a_renamed_dependency(world: SharedState) -> None:
    """A dependent of the earlier URN is replaced with a renamed resource that is deleted first."""

    def program(name: str, block: str, *earlier: str) -> None:
        opts = ResourceOptions(delete_before_replace=True, aliases=[Alias(name=alias) for alias in earlier])
        subnet("inner", vpc(name, f"{block}.0.0/16", opts).id, f"{block}.0.0/24")

    up(world, lambda: program("before", "10.1"))

    result = up(world, lambda: program("after", "10.2", "before"))

    assert changes(result)["inner"] == "delete-replaced replace create-replacement"


def test_additional_secret_outputs_are_secret(world: SharedState) -> None:
    """An additional secret output is a secret in the state and in the inputs that take it."""

    def program() -> None:
        note = parameter("note", opts=ResourceOptions(additional_secret_outputs=["arn"]))
        parameter("other", note.arn)

    result = up(world, program)

    assert isinstance(entry(result, "note").outputs["arn"], Secret)
    assert isinstance(entry(result, "other").inputs["value"], Secret)


def test_a_same_step_stores_new_options(world: SharedState) -> None:
    """Added or removed protection takes a `same` step and counts in the next run."""
    up(world, lambda: parameter("note", opts=ResourceOptions(protect=True)))

    result = up(world, lambda: parameter("note"))

    assert not entry(result, "note").protect
    assert {step.op for step in result.steps} == {Op.SAME}
