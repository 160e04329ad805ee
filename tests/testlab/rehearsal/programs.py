"""Small Pulumi programs for tests of the rehearsal, and the declared resources of fleet files."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions, _types

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import Run, SharedState, Stack, run
from bedplate.rehearsal.state import Entry, Op, Step

HOME = DefaultProvider("us-west-2")
ACCOUNT = "111122223333"
StepsByUrn = Mapping[str, tuple[tuple[Op, tuple[str, ...], tuple[str, ...]], ...]]


def stack(program: Callable[[], object], *, name: str = "lab", default: DefaultProvider = HOME) -> Stack:
    """Return a stack of the project `lab`."""

    def quiet() -> None:
        program()

    return Stack(name, "lab", quiet, default_provider=default)


def up(world: SharedState, program: Callable[[], object]) -> Run:
    """Preview a program and run it; the preview must list the steps of the run and change nothing."""
    before = dict(world.snapshots)
    planned = run(stack(program), world, preview=True)
    assert world.snapshots == before
    result = run(stack(program), world)
    assert not result.failures, result.failures
    assert steps_by_urn(planned.steps) == steps_by_urn(result.steps)
    return result


def steps_by_urn(steps: tuple[Step, ...]) -> StepsByUrn:
    """Return the steps of each resource: operation, changed keys, replace keys."""
    urns = dict.fromkeys(step.urn for step in steps)
    return {urn: tuple((step.op, step.keys, step.replace_keys) for step in steps if step.urn == urn) for urn in urns}


def changes(result: Run) -> dict[str, str]:
    """Return the operations of a run that changed AWS resources, by the name of the resource."""
    operations: dict[str, str] = {}
    for step in result.steps:
        if step.is_in_cloud and step.is_change:
            name = step.urn.rpartition("::")[2]
            operations[name] = f"{operations[name]} {step.op.value}" if name in operations else step.op.value
    return operations


def entry(result: Run, name: str) -> Entry:
    """Return the entry with a name from the state after a run."""
    return next(entry for entry in result.snapshot.entries.values() if entry.name == name)


def parameter(
    name: str, value: Input[str] = "v", opts: ResourceOptions | None = None, path: Input[str] = "", **more: object
) -> aws.ssm.Parameter:
    """Declare an SSM parameter, the fastest resource; it has a fixed name and is deleted before its replacement."""
    return aws.ssm.Parameter(name, name=path or f"/{name}", type="String", value=value, opts=opts, **more)


def vpc(name: str, block: str = "10.1.0.0/16", opts: ResourceOptions | None = None, **more: object) -> aws.ec2.Vpc:
    """Declare a VPC, whose replacement is created first."""
    return aws.ec2.Vpc(name, cidr_block=block, opts=opts, **more)


def subnet(name: str, vpc_id: Output[str], block: str, opts: ResourceOptions | None = None) -> aws.ec2.Subnet:
    """Declare a subnet, which is replaced with its VPC."""
    return aws.ec2.Subnet(name, vpc_id=vpc_id, cidr_block=block, opts=opts)


_MEMBERS = (f"control-{number}" for number in range(1, 8))
EXAMPLES = Path(__file__).parents[3] / "examples"
# Exports of the stacks that other stacks read, as after their creation.
EXPORTS = {
    "alarm_topic_arn": "arn:aws:sns:us-west-2:111122223333:lab-alarms",
    "data_key_arn": "arn:aws:kms:us-west-2:111122223333:key/d",
    "edge_table_id": "rtb-2",
    "files": {"home": {"addresses": ["10.64.32.9"]}},
    "laptop_gateway": {"private_ip": "10.64.0.9"},
    "node_table_ids": {zone: "rtb-1" for facts in load_catalog().regions.values() for zone in facts.zones},
    "parameter_key_arn": "arn:aws:kms:us-west-2:111122223333:key/k",
    "profile_arns": dict.fromkeys(
        ("ssh", "kubernetes", *_MEMBERS, "gateway", "hub"), "arn:aws:iam::111122223333:instance-profile/p"
    ),
    "regions": list(load_catalog().regions),
    "transit_gateway_id": "tgw-1",
    "transit_table_id": "tgw-rtb-1",
    "vpc_id": "vpc-1",
    "zone_id": "Z1",
}
NOTHING = Record({})

Declared = Mapping[str, tuple[Entry, ...]]


def plan_of(fleet_file: Path, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet file with the entries of its lock."""
    return plan_fleet(load_fleet(fleet_file, load_catalog()).fleet, record, load_catalog())


def plan_of_text(text: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of the text of a fleet file with the entries of its lock."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.yaml"
        file.write_text(text, encoding="utf-8")
        return plan_of(file, record)


@cache
def declared_of(fleet_file: Path) -> Declared:
    """Return what each stack of a fleet file declares; the result is cached and must not be changed."""
    return declared(plan_of(fleet_file))


def declared(plan: FleetPlan) -> Declared:
    """Return what each stack of a fleet declares, by the name of the stack."""
    stacks = [stack for wave in waves(plan) for stack in wave]
    with running(plan.account) as simulation:
        world = SharedState(simulation, exports={stack.full_name: EXPORTS for stack in stacks})
        runs = {stack.name: run(stack, world, preview=True) for stack in stacks}
    assert not [failure for result in runs.values() for failure in result.failures]
    return {name: tuple(result.snapshot.entries.values()) for name, result in runs.items()}


def rendered(args: object) -> dict[str, Any]:
    """Return the arguments of a resource by their schema names; none of them may be an output."""
    names = _types.input_type_py_to_pulumi_names(type(args))
    values = _types.input_type_to_dict(args).items()
    return {names.get(key, key): _plain(value) for key, value in values if value is not None}


def _plain(value: Any) -> Any:  # noqa: ANN401  # any value of the SDK's arguments
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return rendered(value) if _types.is_input_type(type(value)) else value
