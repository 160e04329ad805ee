"""Small programs run in a rehearsal: each is previewed first, and the preview is held to its word."""

from collections.abc import Callable, Mapping

import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

from bedplate.rehearsal.providers import DefaultProvider
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import Run, Stack, World, run
from bedplate.rehearsal.step import Op, Step

HOME = DefaultProvider("us-west-2")
ACCOUNT = "111122223333"
Told = Mapping[str, tuple[tuple[Op, tuple[str, ...], tuple[str, ...]], ...]]


def stack(program: Callable[[], object], *, name: str = "lab", default: DefaultProvider = HOME) -> Stack:
    """Return a stack of the project `lab`."""

    def quiet() -> None:
        program()

    return Stack(name, "lab", quiet, default_provider=default)


def up(world: World, program: Callable[[], object]) -> Run:
    """Preview a program and run it; the preview must tell what the run does, and do nothing."""
    before = dict(world.snapshots)
    planned = run(stack(program), world, preview=True)
    assert world.snapshots == before
    done = run(stack(program), world)
    assert not done.failures, done.failures
    assert told(planned.steps) == told(done.steps)
    return done


def told(steps: tuple[Step, ...]) -> Told:
    """Return what steps say, resource by resource."""
    urns = dict.fromkeys(step.urn for step in steps)
    return {urn: tuple((one.op, one.keys, one.replace_keys) for one in steps if one.urn == urn) for urn in urns}


def changes(done: Run) -> dict[str, str]:
    """Return the operations of a run on what it changed in the cloud, by the resource's name."""
    found: dict[str, str] = {}
    for step in done.steps:
        if step.is_in_cloud and step.is_change:
            name = step.urn.rpartition("::")[2]
            found[name] = f"{found[name]} {step.op.value}" if name in found else step.op.value
    return found


def entry(done: Run, name: str) -> Entry:
    """Return the entry of that name that a run left."""
    return next(one for one in done.snapshot.entries.values() if one.name == name)


def parameter(
    name: str, value: Input[str] = "v", opts: ResourceOptions | None = None, path: Input[str] = "", **more: object
) -> aws.ssm.Parameter:
    """Declare a parameter, the quickest resource there is; its fixed name makes it go first when it is replaced."""
    return aws.ssm.Parameter(name, name=path or f"/{name}", type="String", value=value, opts=opts, **more)


def vpc(name: str, block: str = "10.1.0.0/16", opts: ResourceOptions | None = None, **more: object) -> aws.ec2.Vpc:
    """Declare a VPC, which is created before the one it replaces is deleted."""
    return aws.ec2.Vpc(name, cidr_block=block, opts=opts, **more)


def subnet(name: str, vpc_id: Output[str], block: str, opts: ResourceOptions | None = None) -> aws.ec2.Subnet:
    """Declare a subnet, which a new VPC replaces."""
    return aws.ec2.Subnet(name, vpc_id=vpc_id, cidr_block=block, opts=opts)
