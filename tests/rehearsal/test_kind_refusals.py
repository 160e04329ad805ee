"""Kinds refuse what AWS refuses, with the same error code, and leave nothing behind."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.state import ResourceError
from tests.testlab.kinds import refused_machines, refused_network, refused_services
from tests.testlab.kinds import world as services
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.storage import SERVICES
from tests.testlab.kinds.world import Given, KindFixture, World
from tests.testlab.rehearsal.live import census

pytestmark = pytest.mark.nightly

FIXTURES: dict[str, KindFixture] = {fixture.token.rpartition(":")[2]: fixture for fixture in reversed(NETWORK)}
# Types of two packages may have the same name: types of transit gateways have the prefix Transit here.
FIXTURES |= {
    f"Transit{short}": next(fixture for fixture in NETWORK if fixture.token == f"aws:ec2transitgateway/{module}:{name}")
    for short, module, name in (
        ("Table", "routeTable", "RouteTable"),
        ("Association", "routeTableAssociation", "RouteTableAssociation"),
        ("Route", "route", "Route"),
    )
}
FIXTURES |= {"Interface": next(fixture for fixture in NETWORK if fixture.variant == "interface")}
REFUSED_NETWORK = (*refused_network.NETWORK_CALLS, *refused_network.TRANSIT_CALLS)


def changed_inputs(name: str, world: World, changes: Given) -> dict[str, Any]:
    """Return the inputs of a fixture with changes; a change to None removes the input."""
    fixture = FIXTURES[name]
    valid = {**KINDS[fixture.token].defaults, **fixture.inputs_in(world)}
    invalid = changes(world) if callable(changes) else changes
    return {key: value for key, value in {**valid, **invalid}.items() if value is not None}


@pytest.mark.parametrize(("name", "changes", "code"), REFUSED_NETWORK)
def test_a_refused_network_resource_leaves_nothing(name: str, changes: Given, code: str, world: World) -> None:
    """A refused create raises the code of AWS, and deletes what it had created."""
    kind, inputs = KINDS[FIXTURES[name].token], changed_inputs(name, world, changes)
    before = census(world.aws)

    with pytest.raises(ResourceError) as refused:
        kind.create(world.aws, inputs)

    assert refused.value.code == code
    assert census(world.aws) == before


def test_a_public_nat_gateway_needs_an_internet_gateway(world: World) -> None:
    """Without one in the VPC, AWS creates the NAT gateway in the state `failed`."""
    kind = KINDS["aws:ec2/natGateway:NatGateway"]
    inputs = {"subnetId": world.subnet, "allocationId": world.address}

    with pytest.raises(ResourceError, match=r"Gateway\.NotAttached"):
        kind.create(world.aws, inputs)

    assert world.gateway
    assert kind.create(world.aws, inputs)


INVALID_INPUTS = (*refused_services.SERVICE_INPUTS, *refused_machines.MACHINE_INPUTS, *refused_services.POLICY_INPUTS)
REFUSED_SERVICES = (*refused_services.SERVICE_CALLS, *refused_machines.MACHINE_CALLS, *refused_services.POLICY_CALLS)
_BUCKET, _GROUP, _TEMPLATE = (
    "aws:s3/bucket:Bucket",
    "aws:autoscaling/group:Group",
    "aws:ec2/launchTemplate:LaunchTemplate",
)
_SCHEDULE = "aws:autoscaling/schedule:Schedule"


def _valid_inputs(token: str, world: World) -> dict[str, Any]:
    """Return the inputs of the first fixture of a kind, with the defaults of the provider."""
    fixture = next(fixture for fixture in SERVICES if fixture.token == token)
    return {**KINDS[token].defaults, **fixture.inputs_in(world)}


@pytest.mark.parametrize(("token", "changes", "key"), INVALID_INPUTS)
def test_an_invalid_input_is_reported_before_a_call(
    token: str, changes: dict[str, Any], key: str, world: World
) -> None:
    """Checks report errors that need no call, with the name of the input."""
    inputs = {**_valid_inputs(token, world), **changes}

    errors = list(KINDS[token].complaints(world.aws, inputs))

    assert [error.key for error in errors] == [key]


@pytest.mark.parametrize(
    ("token", "change", "code"), [row[1:] for row in REFUSED_SERVICES], ids=[row[0] for row in REFUSED_SERVICES]
)
def test_a_refused_service_resource_raises_the_code_of_aws(
    token: str, change: Callable[[World], dict[str, Any]], code: str, world: World
) -> None:
    """Unknown and duplicate names raise the error code of AWS."""
    inputs = {**_valid_inputs(token, world), **change(world)}

    with pytest.raises(ResourceError) as refused:
        KINDS[token].create(world.aws, inputs)

    assert refused.value.code == code


def test_a_refused_create_leaves_nothing(world: World) -> None:
    """When a later call of a create is refused, the results of earlier calls are deleted."""
    profile = "aws:iam/instanceProfile:InstanceProfile"
    inputs = {**_valid_inputs(profile, world), "role": "ghost"}

    with pytest.raises(ResourceError):
        KINDS[profile].create(world.aws, inputs)

    with pytest.raises(ResourceError):
        world.aws.call("iam", "get_instance_profile", InstanceProfileName=inputs["name"])


def test_a_bucket_with_objects_needs_force_destroy(world: World) -> None:
    """AWS refuses to delete a bucket with objects; `forceDestroy` deletes the objects first."""
    kind, inputs = KINDS[_BUCKET], {"bucket": services.fresh("full")}
    kind.create(world.aws, inputs)
    world.aws.call("s3", "put_object", Bucket=inputs["bucket"], Key="a", Body=b"1")

    with pytest.raises(ResourceError, match="BucketNotEmpty"):
        kind.delete(world.aws, inputs["bucket"], {"forceDestroy": False})
    kind.delete(world.aws, inputs["bucket"], {"forceDestroy": True})

    assert inputs["bucket"] not in [bucket["Name"] for bucket in world.aws.call("s3", "list_buckets")["Buckets"]]


def test_a_mount_target_without_groups_has_the_default_group(world: World) -> None:
    """EFS assigns the default security group of the VPC."""
    kind = KINDS["aws:efs/mountTarget:MountTarget"]
    inputs = {key: value for key, value in _valid_inputs(kind.token, world).items() if key != "securityGroups"}

    outputs = kind.read(world.aws, kind.create(world.aws, inputs), inputs)

    (group,) = world.aws.call("ec2", "describe_security_groups", GroupIds=outputs["securityGroups"])["SecurityGroups"]
    assert (group["GroupName"], group["VpcId"]) == ("default", world.vpc)


def test_a_duplicate_record_is_refused(world: World) -> None:
    """A record with the same name and type exists once."""
    kind, inputs = KINDS["aws:route53/record:Record"], _valid_inputs("aws:route53/record:Record", world)
    kind.create(world.aws, inputs)

    with pytest.raises(ResourceError, match="already exists"):
        kind.create(world.aws, {**inputs, "records": ["10.20.0.9"]})


def test_tags_of_a_scaling_group_are_replaced(world: World) -> None:
    """The tags of a group are a list of blocks with `propagateAtLaunch`."""
    kind, inputs = KINDS[_GROUP], _valid_inputs(_GROUP, world)
    first = {**inputs, "tags": [{"key": "pool", "value": "train", "propagateAtLaunch": True}]}
    ident = kind.create(world.aws, first)

    second = {**inputs, "tags": [{"key": "owner", "value": "lab", "propagateAtLaunch": False}]}
    kind.update(world.aws, ident, first, second)

    (group,) = world.aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[ident])[
        "AutoScalingGroups"
    ]
    assert [(tag["Key"], tag["PropagateAtLaunch"]) for tag in group["Tags"]] == [("owner", False)]


def test_scheduled_actions_are_separate_for_each_group(world: World) -> None:
    """Two groups may have actions of the same name; deleting one keeps the other."""
    kind, inputs = KINDS[_SCHEDULE], _valid_inputs(_SCHEDULE, world)
    other = {**inputs, "autoscalingGroupName": services.scaling_group(world), "maxSize": 5}

    name, same = kind.create(world.aws, inputs), kind.create(world.aws, other)
    kind.delete(world.aws, name, inputs)

    assert kind.read(world.aws, same, other)["maxSize"] == 5
    with pytest.raises(ResourceError, match="The scheduled action"):
        kind.read(world.aws, name, inputs)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ({"recurrence": "0 20 * * *"}, {"recurrence": "0 20 * * *"}, True),
        ({"recurrence": "0 20 * * *"}, {"recurrence": "0 20 * * *", "timeZone": "Europe/Zurich"}, False),
        ({"recurrence": "0 1 * * *", "timeZone": "Europe/Zurich"}, {"startTime": "2099-01-01T00:00:00Z"}, True),
        ({"startTime": "2099-01-01T00:00:00Z"}, {"recurrence": "0 0 * * 1"}, True),
        ({"startTime": "2099-01-01T00:00:00Z"}, {"startTime": "2099-01-01T00:00:00Z"}, True),
        ({"startTime": "2099-01-01T00:00:00Z"}, {"startTime": "2099-01-02T00:00:00Z"}, False),
    ],
)
def test_the_actions_of_a_group_have_times_of_their_own(
    first: dict[str, str], second: dict[str, str], world: World, *, is_refused: bool
) -> None:
    """AWS refuses a second action at the same time, which moto accepts."""
    kind = KINDS[_SCHEDULE]
    valid = {
        key: value for key, value in _valid_inputs(_SCHEDULE, world).items() if key not in ("recurrence", "timeZone")
    }
    valid.pop("startTime", None)
    valid.pop("endTime", None)
    kind.create(world.aws, {**valid, **first})

    with pytest.raises(ResourceError, match="has the same time") if is_refused else nullcontext():
        kind.create(world.aws, {**valid, **second, "scheduledActionName": "second"})


def test_a_recurring_action_cannot_be_updated_after_its_first_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider sends the start time in the state, which is in the past; a new action has a later one."""
    kind, inputs = KINDS[_SCHEDULE], _valid_inputs(_SCHEDULE, world)
    changed = {**inputs, "maxSize": 9}
    name = kind.create(world.aws, inputs)
    before = kind.read(world.aws, name, inputs)["startTime"]
    kind.update(world.aws, name, inputs, changed)
    after = kind.read(world.aws, name, inputs)["startTime"]
    monkeypatch.setattr(world.aws.simulation, "elapsed", timedelta(days=1))

    with pytest.raises(ResourceError, match="Given start time is in the past"):
        kind.update(world.aws, name, changed, inputs)
    kind.delete(world.aws, name, inputs)

    assert before == after
    assert kind.read(world.aws, kind.create(world.aws, inputs), inputs)["startTime"] > before


def test_a_group_launches_from_a_new_template_version(world: World) -> None:
    """A group with the new version launches instances with its user data."""
    kind, inputs = KINDS[_TEMPLATE], _valid_inputs(_TEMPLATE, world)
    ident = kind.create(world.aws, inputs)
    kind.update(world.aws, ident, inputs, {**inputs, "userData": b64encode(b"#!/bin/sh\n").decode()})

    group = {**_valid_inputs(_GROUP, world), "launchTemplate": {"id": ident, "version": "2"}}
    name = KINDS[_GROUP].create(world.aws, group)

    assert KINDS[_GROUP].read(world.aws, name, group)["desiredCapacity"] == 1


def test_a_volume_cannot_shrink(world: World) -> None:
    """EBS refuses to make a volume smaller."""
    kind, inputs = KINDS["aws:ebs/volume:Volume"], _valid_inputs("aws:ebs/volume:Volume", world)
    ident = kind.create(world.aws, inputs)

    with pytest.raises(ResourceError, match="cannot be smaller"):
        kind.update(world.aws, ident, inputs, {**inputs, "size": inputs["size"] - 1})
