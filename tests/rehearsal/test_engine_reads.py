"""Tests of reads: exports of other stacks, existing resources (`get`), and data functions."""

from collections.abc import Iterator

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import Output, StackReference

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Op
from bedplate.rehearsal.wire import Secret
from tests.testlab.rehearsal.programs import ACCOUNT, changes, entry, parameter, stack, up, vpc


@pytest.fixture
def world(simulation: Simulation) -> Iterator[SharedState]:
    """Return a world with a stack that exports a name and a secret; delete the parameters that a test keeps."""
    world = SharedState(simulation)

    def exporting() -> None:
        pulumi.export("zone", "internal")
        pulumi.export("token", Output.secret("s3cr3t"))

    run(stack(exporting, name="shared"), world)
    yield world
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other"]})


def _read_export(export: str) -> None:
    shared = StackReference("organization/lab/shared")
    parameter("note", shared.require_output(export))


def test_a_stack_reads_exports_of_another(world: SharedState) -> None:
    """An export keeps its value, and a StackReference is a read step."""
    result = up(world, lambda: _read_export("zone"))

    assert entry(result, "note").outputs["arn"]
    assert [step.op for step in result.steps if "StackReference" in step.urn] == [Op.READ]


def test_a_second_reference_to_a_stack_is_refused(world: SharedState) -> None:
    """As in the engine, a second StackReference with the same name is a duplicate URN."""

    def program() -> None:
        _read_export("zone")
        StackReference("organization/lab/shared")

    result = run(stack(program), world)

    assert [failure.code for failure in result.failures if not failure.skipped] == ["DuplicateUrn"]


def test_a_secret_export_stays_secret(world: SharedState) -> None:
    """A secret export is a secret in the reading stack, and hidden in the graph."""
    result = up(world, lambda: _read_export("token"))

    assert isinstance(entry(result, "note").inputs["value"], Secret)
    assert "s3cr3t" not in str(graph(result.snapshot.entries.values()))


def test_a_missing_export_is_a_failure(world: SharedState) -> None:
    """A required export that the other stack does not have is a failure."""
    result = run(stack(lambda: _read_export("missing")), world)

    assert ["missing" in failure.message for failure in result.failures] == [True]


def test_a_read_resource_is_discarded_not_deleted(world: SharedState) -> None:
    """A resource from `get` is never changed, and only removed from the state."""

    def program() -> None:
        read_vpc = aws.ec2.Vpc.get("found", vpc("own").id)
        parameter("note", read_vpc.cidr_block)

    result = up(world, program)
    after = up(world, lambda: vpc("own"))

    assert entry(result, "note").ident
    assert entry(result, "found").external
    assert changes(after) == {"found": "discard", "note": "delete"}


def test_declaring_a_read_resource_creates_a_new_one(world: SharedState) -> None:
    """As in the engine, a declared resource replaces a read one and does not change it."""
    other = run(stack(lambda: vpc("theirs"), name="other"), world)
    ident = entry(other, "theirs").ident
    up(world, lambda: aws.ec2.Vpc.get("found", ident))

    result = up(world, lambda: vpc("found", "10.2.0.0/16"))

    assert changes(result) == {"found": "create-replacement replace"}
    assert entry(result, "found").ident != ident


def test_reading_instead_of_declaring_deletes_the_old_one(world: SharedState) -> None:
    """If a program reads another resource under the URN of a declared one, the declared one is deleted."""
    other = run(stack(lambda: vpc("theirs"), name="other"), world)
    up(world, lambda: vpc("found", "10.2.0.0/16"))

    result = up(world, lambda: aws.ec2.Vpc.get("found", entry(other, "theirs").ident))

    assert changes(result) == {"found": "delete-replaced"}


def test_a_data_function_returns_its_result(world: SharedState) -> None:
    """A data function returns its result while the program runs."""

    def program() -> None:
        parameter("note", aws.get_caller_identity().account_id)

    result = up(world, program)

    assert entry(result, "note").inputs["value"].value == ACCOUNT


def test_a_data_function_with_unknown_arguments_is_unknown(world: SharedState) -> None:
    """In a preview, a data function with an unknown argument has no result and no failure."""

    def program() -> None:
        region = aws.get_region_output(name=vpc("own").id.apply(lambda _: "eu-north-1"))
        parameter("note", region.endpoint)

    result = up(world, program)

    assert entry(result, "note").inputs["value"].value == "ec2.eu-north-1.amazonaws.com"
