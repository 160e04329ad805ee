"""What a rehearsal says, and leaves behind, when something goes wrong."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import Output, ResourceOptions, ResourceTransformArgs
from pulumi.runtime._callbacks import _CallbackServicer

from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import World, run
from stacks.options import output_of
from tests.testlab.rehearsal.programs import changes, entry, parameter, stack, subnet, up, vpc

# gRPC keeps one for all servers of a process, as a daemon.
GRPC_POLLER = "(_poll_wrapper)"
ABSENT = "eni-00000000000000000"


@pytest.fixture
def world(simulation: Simulation) -> Iterator[World]:
    """Return a world without stacks, and clear away what a test keeps."""
    yield World(simulation)
    simulation.call("ssm", "us-west-2", "delete_parameters", {"Names": ["/note", "/other", "/last"]})


def _raising() -> None:
    raise LookupError("no such lab")


def _broken_component() -> None:
    pulumi.ComponentResource("t:t:Box", "box")
    _raising()


def _broken_transform() -> None:
    def break_down(_: ResourceTransformArgs) -> None:
        _raising()

    parameter("other", opts=ResourceOptions(transforms=[break_down]))


def _formatted() -> None:
    parameter("other", f"see {parameter('last').arn}")


def _leaving() -> None:
    raise SystemExit(3)


FAULTS: dict[str, tuple[Callable[[], object], str, str]] = {
    "AWS's refusal": (lambda: subnet("bad", vpc("outer").id, "172.16.0.0/24"), "InvalidSubnet.Range", "172.16.0.0/24"),
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
    "transform": (_broken_transform, "TransformFailed", "no such lab"),
    "duplicate": (lambda: parameter("note", path="/other"), "DuplicateUrn", "note"),
    "formatted output": (_formatted, "OutputToStringError", "Output"),
    "exit": (_leaving, "SystemExit", "3"),
    "invoke": (lambda: aws.ec2.get_vpc(id="vpc-00000000"), "NotFound", "getVpc"),
    "invoke's output": (lambda: aws.ec2.get_vpc_output(id="vpc-00000000"), "NotFound", "getVpc"),
    "get": (lambda: aws.ec2.Vpc.get("bad", "vpc-00000000"), "InvalidVpcID.NotFound", "vpc-00000000"),
    "stack reference": (lambda: pulumi.StackReference("organization/lab/nowhere"), "UnknownStack", "nowhere"),
    "hook": (lambda: parameter("other", opts=ResourceOptions(import_="/x")), "Unsupported", "import_"),
}


@pytest.mark.parametrize(("fault", "code", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_told_once(world: World, fault: Callable[[], object], code: str, says: str) -> None:
    """One fault makes one failure, with a code and what is at fault; what was declared before it is made."""

    def program() -> None:
        parameter("note")
        fault()

    done = run(stack(program), world)

    assert [(one.code, says in f"{one.urn} {one.message}") for one in done.failures] == [(code, True)]
    assert changes(done)["note"] == "create"


def test_what_depends_on_a_failure_is_skipped(world: World) -> None:
    """A resource whose dependency failed is not tried, and says so; the others are made."""

    def program() -> None:
        bad = aws.ec2.Ami("bad")
        parameter("note", bad.arn)
        parameter("other")

    done = run(stack(program), world)

    assert [(one.urn.rpartition("::")[2], one.skipped) for one in done.failures] == [("bad", False), ("note", True)]
    assert changes(done) == {"other": "create"}


def _half(block: str) -> Callable[[], None]:
    def program() -> None:
        outer = vpc("outer")
        parameter("note", subnet("inner", outer.id, block).cidr_block)
        parameter("other", outer.id)

    return program


def test_the_next_run_goes_on_from_there(world: World) -> None:
    """What was made is kept and not made again; what was not is made."""
    first = run(stack(_half("172.16.0.0/24")), world)

    done = run(stack(_half("10.1.0.0/24")), world)

    assert changes(first) == {"outer": "create", "other": "create"}
    assert changes(done) == {"inner": "create", "note": "create"}
    assert not done.failures


def test_a_failed_run_deletes_nothing(world: World) -> None:
    """A program that came to grief may not have got round to declaring the rest."""
    up(world, lambda: [parameter("note"), parameter("other")])

    done = run(stack(_raising), world)

    assert changes(done) == {}
    assert entry(done, "note").ident == "/note"


def test_a_crash_keeps_the_exports(world: World) -> None:
    """What other stacks read of a stack stays until its program says otherwise."""
    up(world, lambda: pulumi.export("zone", "internal"))

    done = run(stack(_raising), world)

    assert done.snapshot.exports == {"zone": "internal"}


def test_a_failure_names_the_line_of_the_program(world: World) -> None:
    """An exception is told with the file and the line of the program that raised it."""
    done = run(stack(_raising), world)

    assert "test_engine_failures.py:" in done.failures[0].message


def _betray(value: str) -> None:
    raise ValueError(f"{value} is no number")


SECRETS: dict[str, Callable[[Output[str]], object]] = {
    "schema": lambda secret: parameter("other", tags=secret),
    "kind": lambda secret: parameter("other", path=secret.apply(lambda text: f"{text}/x")),
    "AWS": lambda secret: parameter("other", key_id=secret),
    "part": lambda secret: parameter("other", path=Output.concat(secret, "x" * 2048)),
    "program": lambda secret: parameter("other", value=secret).value.apply(_betray),
}


@pytest.mark.parametrize("use", SECRETS.values(), ids=SECRETS.keys())
def test_no_failure_shows_a_secret(world: World, use: Callable[[Output[str]], object]) -> None:
    """Whoever refuses an input, the message hides its value when it is secret."""
    done = run(stack(lambda: use(Output.secret("hunter2 hunter2"))), world)

    assert "hunter2" not in str(done.failures)


@pytest.mark.parametrize("fault", [_raising, _broken_transform])
def test_nothing_is_left_running(world: World, fault: Callable[[], object]) -> None:
    """After a run, whatever happened in it, there is no thread, loop or server of its own."""
    before = {one.name for one in threading.enumerate()}

    done = run(stack(fault), world)

    assert done.failures
    assert {one.name for one in threading.enumerate() if not one.name.endswith(GRPC_POLLER)} <= before
    assert not _CallbackServicer._servicers  # noqa: SLF001  # the SDK's list of servers that run
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_missing_stack_fails_only_its_readers(world: World) -> None:
    """A program that reads the exports of a stack without any goes on with the rest."""

    def reader() -> None:
        name = pulumi.StackReference("organization/lab/lost").require_output("name")
        parameter("last", name)
        parameter("other")

    done = run(stack(reader), world)

    assert [failure.skipped for failure in done.failures] == [False, True]
    assert changes(done) == {"other": "create"}


def test_a_missing_export_names_its_stack(world: World) -> None:
    """The message names the stack and the export, and what to do."""
    partial = stack(lambda: pulumi.export("vpc_id", "vpc-1"), name="lab.west")

    def reader() -> None:
        west = pulumi.StackReference("organization/lab/lab.west")
        parameter("note", output_of(west, "vpc_id"))
        parameter("other", output_of(west, "zone_id"))

    done = [run(one, world) for one in (partial, stack(reader))][-1]

    messages = [(failure.code, failure.message) for failure in done.failures]
    assert messages == [("InputError", "the stack lab.west has no output zone_id yet\ndeploy lab.west first")]
    assert changes(done) == {"note": "create"}
