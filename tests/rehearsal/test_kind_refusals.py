"""What AWS refuses of the network's kinds and moto would let pass, told by AWS's own codes; nothing stays half made."""

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.state import Refusal
from tests.testlab.kinds import refused_machines, refused_network, refused_services
from tests.testlab.kinds import world as services
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.storage import SERVICES
from tests.testlab.kinds.world import Given, Specimen, World
from tests.testlab.rehearsal.live import census

pytestmark = pytest.mark.nightly

SPECIMENS: dict[str, Specimen] = {each.token.rpartition(":")[2]: each for each in reversed(NETWORK)}
# Types of two packages may have one name: those of transit gateways come last in it, and go by another here.
SPECIMENS |= {
    f"Transit{short}": next(each for each in NETWORK if each.token == f"aws:ec2transitgateway/{module}:{name}")
    for short, module, name in (
        ("Table", "routeTable", "RouteTable"),
        ("Association", "routeTableAssociation", "RouteTableAssociation"),
        ("Route", "route", "Route"),
    )
}
SPECIMENS |= {"Interface": next(each for each in NETWORK if each.form == "interface")}
DEFECTS = (*refused_network.DEFECTS, *refused_network.DEFECTS_TRANSIT_DEFECTS)


def inputs_of(name: str, world: World, spoiled: Given) -> dict[str, Any]:
    """Return a specimen's inputs with some of them spoiled; what is spoiled to None is left out."""
    specimen = SPECIMENS[name]
    good = {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}
    bad = spoiled(world) if callable(spoiled) else spoiled
    return {key: value for key, value in {**good, **bad}.items() if value is not None}


@pytest.mark.parametrize(("name", "spoiled", "code"), DEFECTS)
def test_what_aws_refuses_is_refused_and_leaves_nothing(name: str, spoiled: Given, code: str, world: World) -> None:
    """A refused create has AWS's code, and all that it had made is gone."""
    kind, inputs = KINDS[SPECIMENS[name].token], inputs_of(name, world, spoiled)
    before = census(world.aws)

    with pytest.raises(Refusal) as refused:
        kind.create(world.aws, inputs)

    assert refused.value.code == code
    assert census(world.aws) == before


def test_a_public_nat_gateway_needs_a_way_out(world: World) -> None:
    """Without an internet gateway in its VPC AWS makes a NAT gateway, and it fails."""
    kind = KINDS["aws:ec2/natGateway:NatGateway"]
    inputs = {"subnetId": world.subnet, "allocationId": world.address, "connectivityType": "public"}

    with pytest.raises(Refusal, match=r"Gateway\.NotAttached"):
        kind.create(world.aws, inputs)

    assert world.gateway
    assert kind.create(world.aws, inputs)


COMPLAINTS = (*refused_services.COMPLAINTS, *refused_machines.COMPLAINTS, *refused_services.DEFECTS_POLICIES_COMPLAINTS)
REFUSALS = (*refused_services.REFUSALS, *refused_machines.REFUSALS, *refused_services.DEFECTS_POLICIES_REFUSALS)
_BUCKET, _GROUP, _TEMPLATE = (
    "aws:s3/bucket:Bucket",
    "aws:autoscaling/group:Group",
    "aws:ec2/launchTemplate:LaunchTemplate",
)
_SCHEDULE = "aws:autoscaling/schedule:Schedule"


def _sound(token: str, world: World) -> dict[str, Any]:
    """Return the inputs of the first specimen of a kind, with what the provider fills in."""
    specimen = next(each for each in SERVICES if each.token == token)
    return {**KINDS[token].defaults, **specimen.inputs_in(world)}


@pytest.mark.parametrize(("token", "spoiled", "key"), COMPLAINTS)
def test_limits_are_complained_about(token: str, spoiled: dict[str, Any], key: str, world: World) -> None:
    """What no call need be made for is told before anything is made, under the input at fault."""
    inputs = {**_sound(token, world), **spoiled}

    complaints = list(KINDS[token].complaints(world.aws, inputs))

    assert [complaint.key for complaint in complaints] == [key]


@pytest.mark.parametrize(("token", "spoil", "code"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_aws_refuses_is_refused(
    token: str, spoil: Callable[[World], dict[str, Any]], code: str, world: World
) -> None:
    """A name that leads nowhere, or is taken, is refused with AWS's own code."""
    inputs = {**_sound(token, world), **spoil(world)}

    with pytest.raises(Refusal) as refused:
        KINDS[token].create(world.aws, inputs)

    assert refused.value.code == code


def test_a_refused_create_leaves_nothing(world: World) -> None:
    """What an earlier call of a create made is taken away when a later one is refused."""
    inputs = {**_sound("aws:iam/role:Role", world), "managedPolicyArns": ["arn:aws:iam::aws:policy/NoSuchPolicy"]}

    with pytest.raises(Refusal):
        KINDS["aws:iam/role:Role"].create(world.aws, inputs)

    with pytest.raises(Refusal):
        world.aws.call("iam", "get_role", RoleName=inputs["name"])


def test_a_full_bucket_is_kept_unless_it_is_told_to_go(world: World) -> None:
    """Deleting a bucket that holds objects is refused; `forceDestroy` empties it first."""
    kind, inputs = KINDS[_BUCKET], {"bucket": services.fresh("full")}
    kind.create(world.aws, inputs)
    world.aws.call("s3", "put_object", Bucket=inputs["bucket"], Key="a", Body=b"1")

    with pytest.raises(Refusal, match="BucketNotEmpty"):
        kind.delete(world.aws, inputs["bucket"], {"forceDestroy": False})
    kind.delete(world.aws, inputs["bucket"], {"forceDestroy": True})

    assert inputs["bucket"] not in [one["Name"] for one in world.aws.call("s3", "list_buckets")["Buckets"]]


def test_a_second_record_of_one_name_is_refused(world: World) -> None:
    """Route 53 holds one record of a name and type, unless the program says to overwrite it."""
    kind, inputs = KINDS["aws:route53/record:Record"], _sound("aws:route53/record:Record", world)
    kind.create(world.aws, inputs)

    with pytest.raises(Refusal, match="already exists"):
        kind.create(world.aws, {**inputs, "records": ["10.20.0.9"]})
    kind.create(world.aws, {**inputs, "records": ["10.20.0.9"], "allowOverwrite": True})


def test_tags_of_a_scaling_group_come_and_go(world: World) -> None:
    """A group's tags are a list of their own form, and travel to its machines or not."""
    kind, inputs = KINDS[_GROUP], _sound(_GROUP, world)
    first = {**inputs, "tags": [{"key": "pool", "value": "train", "propagateAtLaunch": True}]}
    ident = kind.create(world.aws, first)

    second = {**inputs, "tags": [{"key": "owner", "value": "lab", "propagateAtLaunch": False}]}
    kind.update(world.aws, ident, first, second)

    (found,) = world.aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[ident])[
        "AutoScalingGroups"
    ]
    assert [(tag["Key"], tag["PropagateAtLaunch"]) for tag in found["Tags"]] == [("owner", False)]


def test_each_group_has_scheduled_actions_of_its_own(world: World) -> None:
    """A name is taken in one group alone: what another group does of that name stays, and goes with itself."""
    kind, inputs = KINDS[_SCHEDULE], _sound(_SCHEDULE, world)
    other = {**inputs, "autoscalingGroupName": services.scaling_group(world), "maxSize": 5}

    name, same = kind.create(world.aws, inputs), kind.create(world.aws, other)
    kind.delete(world.aws, name, inputs)

    assert kind.read(world.aws, same, other)["maxSize"] == 5
    with pytest.raises(Refusal, match="no scheduled action"):
        kind.read(world.aws, name, inputs)


def test_an_action_that_recurs_cannot_be_updated_a_day_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider sends the start time of the state, which is past by then; a new action gets a later one."""
    kind, inputs = KINDS[_SCHEDULE], _sound(_SCHEDULE, world)
    changed = {**inputs, "maxSize": 9}
    name = kind.create(world.aws, inputs)
    before = kind.read(world.aws, name, inputs)["startTime"]
    kind.update(world.aws, name, inputs, changed)
    after = kind.read(world.aws, name, inputs)["startTime"]
    monkeypatch.setattr(world.aws.simulation, "elapsed", timedelta(days=1))

    with pytest.raises(Refusal, match="Given start time is in the past"):
        kind.update(world.aws, name, changed, inputs)
    kind.delete(world.aws, name, inputs)

    assert before == after
    assert kind.read(world.aws, kind.create(world.aws, inputs), inputs)["startTime"] > before


def test_a_group_starts_machines_from_a_later_version(world: World) -> None:
    """User data of a changed template reaches the machines of a group that grows."""
    kind, inputs = KINDS[_TEMPLATE], _sound(_TEMPLATE, world)
    ident = kind.create(world.aws, inputs)
    kind.update(world.aws, ident, inputs, {**inputs, "userData": b64encode(b"#!/bin/sh\n").decode()})

    group = {**_sound(_GROUP, world), "launchTemplate": {"id": ident, "version": "2"}}
    name = KINDS[_GROUP].create(world.aws, group)

    assert KINDS[_GROUP].read(world.aws, name, group)["desiredCapacity"] == 1


def test_a_volume_never_shrinks(world: World) -> None:
    """EBS grows a volume in place, and refuses to make it smaller."""
    kind, inputs = KINDS["aws:ebs/volume:Volume"], _sound("aws:ebs/volume:Volume", world)
    ident = kind.create(world.aws, inputs)

    with pytest.raises(Refusal, match="cannot be smaller"):
        kind.update(world.aws, ident, inputs, {**inputs, "size": inputs["size"] - 1})
