"""Tests of failures: their report, the state after them, and the process after them."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import Output, ResourceOptions
from pulumi.runtime._callbacks import _CallbackServicer

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import SharedState, run
from stacks.options import output_of
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc

# gRPC runs one such daemon thread for all servers of a process.
GRPC_POLLER = "(_poll_wrapper)"
ABSENT = "eni-00000000000000000"


@pytest.fixture
def world(simulation: Simulation) -> Iterator[SharedState]:
    """Return a world without stacks; delete the parameters that a test keeps."""
    yield SharedState(simulation)
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other", "/last"]})


def _raising() -> None:
    raise LookupError("no such lab")


def _broken_component() -> None:
    pulumi.ComponentResource("t:t:Box", "box")
    _raising()


def _transformed() -> None:
    parameter("other", opts=ResourceOptions(transforms=[lambda _: None]))


def _formatted() -> None:
    parameter("other", f"see {parameter('last').arn}")


def _exiting() -> None:
    raise SystemExit(3)


ERRORS: dict[str, tuple[Callable[[], object], str, str]] = {
    "refused by AWS": (lambda: subnet("bad", vpc("outer").id, "172.16.0.0/24"), "InvalidSubnet.Range", "172.16.0.0/24"),
    "absent id": (lambda: aws.ec2.Eip("bad", network_interface=ABSENT), "InvalidNetworkInterfaceID.NotFound", ABSENT),
    "missing input": (lambda: aws.ec2.Vpc("bad", assign_generated_ipv6_cidr_block="x"), "InvalidInput", "assign"),
    "missing keyword": (lambda: aws.ec2.Subnet("bad"), "TypeError", "vpc_id"),
    "misspelt keyword": (lambda: aws.ec2.Vpc("bad", cidr_blok="10.1.0.0/16"), "TypeError", "cidr_blok"),
    "wrong type": (lambda: aws.ec2.Vpc("bad", cidr_block=["10.1.0.0/16"]), "AssertionError", "cidr_block"),
    "whole resource": (lambda: subnet("bad", vpc("outer"), "10.1.0.0/24"), "InvalidInput", "vpcId"),
    "unknown type": (lambda: pulumi.CustomResource("aws:ec2/vpc:Vcp", "bad"), "Unsupported", "aws:ec2/vpc:Vcp"),
    "unmodelled type": (lambda: aws.ec2.Ami("bad"), "Unsupported", "aws:ec2/ami:Ami"),
    "foreign package": (lambda: pulumi.CustomResource("gcp:x/y:Z", "bad"), "Unsupported", "gcp"),
    "body": (_raising, "LookupError", "no such lab"),
    "component": (_broken_component, "LookupError", "no such lab"),
    "apply": (lambda: parameter("other").arn.apply(lambda _: _raising()), "LookupError", "no such lab"),
    "transform": (_transformed, "Unsupported", "transforms"),
    "stack transform": (
        lambda: pulumi.runtime.register_resource_transform(lambda _: None),
        "Unsupported",
        "transforms",
    ),
    "duplicate": (lambda: parameter("note", path="/other"), "DuplicateUrn", "note"),
    "formatted output": (_formatted, "OutputToStringError", "Output"),
    "exit": (_exiting, "SystemExit", "3"),
    "invoke": (lambda: aws.get_region(name="us-esat-1"), "NotFound", "getRegion"),
    "invoke's output": (lambda: aws.get_region_output(name="us-esat-1"), "NotFound", "getRegion"),
    "unmodelled invoke": (lambda: aws.ec2.get_vpc(default=True), "Unsupported", "getCallerIdentity"),
    "get": (lambda: aws.ec2.Vpc.get("bad", "vpc-00000000"), "InvalidVpcID.NotFound", "vpc-00000000"),
    "stack reference": (lambda: pulumi.StackReference("organization/lab/nowhere"), "UnknownStack", "nowhere"),
    "hook": (lambda: parameter("other", opts=ResourceOptions(import_="/x")), "Unsupported", "import_"),
}


@pytest.mark.parametrize(("statement", "code", "text"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_one_failure(world: SharedState, statement: Callable[[], object], code: str, text: str) -> None:
    """Each error is one failure with a code and the wrong value; resources declared before it are created."""

    def program() -> None:
        parameter("note")
        statement()

    result = run(stack(program), world)

    failures = [(failure.code, text in f"{failure.urn} {failure.message}") for failure in result.failures]
    assert failures == [(code, True)]
    assert changes(result)["note"] == "create"


def test_dependents_of_a_failure_are_skipped(world: SharedState) -> None:
    """A resource whose dependency failed is skipped and reported; the others are created."""

    def program() -> None:
        bad = aws.ec2.Ami("bad")
        parameter("note", bad.arn)
        parameter("other")

    result = run(stack(program), world)

    assert [(failure.urn.rpartition("::")[2], failure.skipped) for failure in result.failures] == [
        ("bad", False),
        ("note", True),
    ]
    assert changes(result) == {"other": "create"}


def _with_subnet(block: str) -> Callable[[], None]:
    def program() -> None:
        outer = vpc("outer")
        parameter("note", subnet("inner", outer.id, block).cidr_block)
        parameter("other", outer.id)

    return program


def test_the_next_run_creates_the_missing_resources(world: SharedState) -> None:
    """After a failed run, the next run keeps the created resources and creates the others."""
    first = run(stack(_with_subnet("172.16.0.0/24")), world)

    result = run(stack(_with_subnet("10.1.0.0/24")), world)

    assert changes(first) == {"outer": "create", "other": "create"}
    assert changes(result) == {"inner": "create", "note": "create"}
    assert not result.failures


def test_a_failed_run_deletes_nothing(world: SharedState) -> None:
    """A program may fail before it declares all its resources, so nothing is deleted."""
    up(world, lambda: [parameter("note"), parameter("other")])

    result = run(stack(_raising), world)

    assert changes(result) == {}
    assert entry(result, "note").ident == "/note"


def test_a_failed_run_keeps_the_exports(world: SharedState) -> None:
    """The exports of a stack stay until its program exports other values."""
    up(world, lambda: pulumi.export("zone", "internal"))

    result = run(stack(_raising), world)

    assert result.snapshot.exports == {"zone": "internal"}


def test_a_failure_names_the_line_of_the_program(world: SharedState) -> None:
    """A failure names the file and line of the program that raised the exception."""
    result = run(stack(_raising), world)

    assert "test_engine_failures.py:" in result.failures[0].message


def _raise_with(value: str) -> None:
    raise ValueError(f"{value} is not a number")


SECRETS: dict[str, Callable[[Output[str]], object]] = {
    "schema": lambda secret: parameter("other", tags=secret),
    "kind": lambda secret: parameter("other", path=secret.apply(lambda text: f"{text}/x")),
    "AWS": lambda secret: parameter("other", key_id=secret),
    "part": lambda secret: parameter("other", path=Output.concat(secret, "x" * 2048)),
    "program": lambda secret: parameter("other", value=secret).value.apply(_raise_with),
}


@pytest.mark.parametrize("use", SECRETS.values(), ids=SECRETS.keys())
def test_no_failure_shows_a_secret(world: SharedState, use: Callable[[Output[str]], object]) -> None:
    """The message of a failure hides a secret input, also if AWS or the program repeats it."""
    result = run(stack(lambda: use(Output.secret("hunter2 hunter2"))), world)

    assert "hunter2" not in str(result.failures)


@pytest.mark.parametrize("program", [_raising, _transformed])
def test_nothing_is_left_running(world: SharedState, program: Callable[[], object]) -> None:
    """After a failed run, no thread, event loop or callback server of it is left."""
    before = {thread.name for thread in threading.enumerate()}

    result = run(stack(program), world)

    assert result.failures
    assert {thread.name for thread in threading.enumerate() if not thread.name.endswith(GRPC_POLLER)} <= before
    assert not _CallbackServicer._servicers  # noqa: SLF001  # the SDK's list of running servers
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_missing_stack_fails_only_its_readers(world: SharedState) -> None:
    """A StackReference to a stack without exports fails; resources that do not use it are created."""

    def reader() -> None:
        name = pulumi.StackReference("organization/lab/lost").require_output("name")
        parameter("last", name)
        parameter("other")

    result = run(stack(reader), world)

    assert [failure.skipped for failure in result.failures] == [False, True]
    assert changes(result) == {"other": "create"}


def test_a_missing_export_names_its_stack(world: SharedState) -> None:
    """The message names the stack, the export and the fix."""
    partial = stack(lambda: pulumi.export("vpc_id", "vpc-1"), name="lab.west")

    def reader() -> None:
        west = pulumi.StackReference("organization/lab/lab.west")
        parameter("note", output_of(west, "vpc_id"))
        parameter("other", output_of(west, "zone_id"))

    run(partial, world)
    result = run(stack(reader), world)

    messages = [(failure.code, failure.message) for failure in result.failures]
    message = "the stack lab.west has no output zone_id yet\nrun `bedplate up --stack west` first"
    assert messages == [("InputError", message)]
    assert changes(result) == {"note": "create"}
