"""What a program reads: other stacks, resources that exist, and data functions."""

from collections.abc import Iterator

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import Output, StackReference

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import World, graph, run
from bedplate.rehearsal.state import Op
from bedplate.rehearsal.wire import Secret
from tests.testlab.rehearsal.programs import ACCOUNT, changes, entry, parameter, stack, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[World]:
    """Return a world with one stack that exports a name and a secret, and clear away what a test keeps."""
    world = World(simulation)

    def exporting() -> None:
        pulumi.export("zone", "internal")
        pulumi.export("token", Output.secret("s3cr3t"))

    run(stack(exporting, name="shared"), world)
    yield world
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other"]})


def _referring(export: str) -> None:
    shared = StackReference("organization/lab/shared")
    parameter("note", shared.require_output(export))


def test_a_stack_reads_anothers_exports(world: World) -> None:
    """An export arrives as it was exported, and reading it is a step of its own."""
    done = up(world, lambda: _referring("zone"))

    assert entry(done, "note").outputs["arn"]
    assert [step.op for step in done.steps if "StackReference" in step.urn] == [Op.READ]


def test_a_stack_is_referred_to_once(world: World) -> None:
    """A reference is a resource: the engine refuses a second one of the same name, and so does the rehearsal."""

    def program() -> None:
        _referring("zone")
        StackReference("organization/lab/shared")

    done = run(stack(program), world)

    assert [failure.code for failure in done.failures if not failure.skipped] == ["DuplicateUrn"]


def test_a_secret_stays_one_from_stack_to_stack(world: World) -> None:
    """What was exported as a secret is a secret where it is read, and in the graph it is hidden."""
    done = up(world, lambda: _referring("token"))

    assert isinstance(entry(done, "note").inputs["value"], Secret)
    assert "s3cr3t" not in str(graph(done.snapshot.entries.values()))


def test_an_export_that_is_not_there_is_a_fault(world: World) -> None:
    """A required output of another stack that it does not have stops what needs it."""
    done = run(stack(lambda: _referring("gone")), world)

    assert ["gone" in failure.message for failure in done.failures] == [True]


def test_a_read_resource_is_not_owned(world: World) -> None:
    """A resource that the program gets is read, never changed, and let go with the program."""

    def program() -> None:
        found = aws.ec2.Vpc.get("found", vpc("own").id)
        parameter("note", found.cidr_block)

    done = up(world, program)
    gone = up(world, lambda: vpc("own"))

    assert entry(done, "note").ident
    assert entry(done, "found").external
    assert changes(gone) == {"found": "discard", "note": "delete"}


def test_owning_what_was_read_makes_a_new_one(world: World) -> None:
    """The engine replaces what was only read: it may not touch what is another's."""
    other = run(stack(lambda: vpc("theirs"), name="other"), world)
    ident = entry(other, "theirs").ident
    up(world, lambda: aws.ec2.Vpc.get("found", ident))

    done = up(world, lambda: vpc("found", "10.2.0.0/16"))

    assert changes(done) == {"found": "create-replacement replace"}
    assert entry(done, "found").ident != ident


def test_reading_another_in_the_place_of_an_own_lets_the_own_go(world: World) -> None:
    """What a program made and now reads elsewhere is deleted, not lost."""
    other = run(stack(lambda: vpc("theirs"), name="other"), world)
    up(world, lambda: vpc("found", "10.2.0.0/16"))

    done = up(world, lambda: aws.ec2.Vpc.get("found", entry(other, "theirs").ident))

    assert changes(done) == {"found": "delete-replaced"}


def test_a_lookup_is_answered_at_once(world: World) -> None:
    """A plain data function gives its result in the midst of the program."""

    def program() -> None:
        parameter("note", aws.get_caller_identity().account_id)

    done = up(world, program)

    assert entry(done, "note").inputs["value"].value == ACCOUNT


def test_a_lookup_of_something_unknown_waits(world: World) -> None:
    """In a preview a data function about what is still to be made has no answer, and no failure."""

    def program() -> None:
        found = aws.ec2.get_vpc_output(id=vpc("own").id)
        parameter("note", found.cidr_block)

    done = up(world, program)

    assert entry(done, "note").inputs["value"].value == "10.1.0.0/16"
