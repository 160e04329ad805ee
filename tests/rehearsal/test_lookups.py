"""Tests of data functions: their results and the arguments that they refuse."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bedplate.rehearsal.kind import empty_result
from bedplate.rehearsal.lookups import LOOKUPS, look_up
from bedplate.rehearsal.state import ResourceError, UnsupportedError
from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import World

_AMI, _POLICY, _ZONE = (
    "aws:ec2/getAmi:getAmi",
    "aws:iam/getPolicyDocument:getPolicyDocument",
    "aws:route53/getZone:getZone",
)
_UBUNTU = {"owners": ["099720109477"], "filters": [{"name": "name", "values": ["*ubuntu*"]}]}
_STATEMENT = {
    "sid": "Plain",
    "effect": "Deny",
    "actions": ["s3:Get*", "s3:Put*"],
    "resources": ["arn:aws:s3:::lab/&{aws:username}/*"],
    "principals": [{"type": "AWS", "identifiers": ["*"]}],
    "conditions": [{"test": "Bool", "variable": "aws:SecureTransport", "values": ["false"]}],
}

# Token, arguments, a property of the result and its value.
RESULTS: tuple[tuple[str, Callable[[World], dict[str, Any]], str, Callable[[World], object]], ...] = (
    ("aws:index/getRegion:getRegion", lambda _: {}, "endpoint", lambda _: "ec2.us-west-2.amazonaws.com"),
    ("aws:index/getPartition:getPartition", lambda _: {}, "dnsSuffix", lambda _: "amazonaws.com"),
    ("aws:index/getCallerIdentity:getCallerIdentity", lambda _: {}, "accountId", lambda _: "111122223333"),
    ("aws:ec2/getVpc:getVpc", lambda world: {"id": world.vpc}, "cidrBlock", lambda _: "10.20.0.0/16"),
    ("aws:ec2/getVpc:getVpc", lambda _: {"default": True}, "default", lambda _: True),
    ("aws:ec2/getSubnet:getSubnet", lambda world: {"id": world.subnet}, "vpcId", lambda world: world.vpc),
    (
        "aws:ec2/getSubnets:getSubnets",
        lambda world: {"filters": [{"name": "subnet-id", "values": [world.subnet]}]},
        "ids",
        lambda world: [world.subnet],
    ),
    (_ZONE, lambda world: {"zoneId": services.zone(world)}, "privateZone", lambda _: True),
)


@pytest.mark.parametrize(("token", "args", "key", "value"), RESULTS)
def test_a_result_has_the_properties_of_the_sdk(
    token: str, args: Callable[[World], dict[str, Any]], key: str, value: Callable[[World], object], world: World
) -> None:
    """A result has exactly the properties of the SDK's class, with values from AWS."""
    result = look_up(world.aws, token, args(world))

    assert result.keys() == empty_result(token).keys()
    assert result[key] == value(world)


@pytest.mark.parametrize("token", sorted(LOOKUPS))
def test_arguments_are_those_of_the_sdk(token: str) -> None:
    """An argument is also a property of the result, unless it only narrows the search."""
    search_only = {"excludeNames", "excludeZoneIds", "defaultForAz"}

    assert LOOKUPS[token].args - search_only <= empty_result(token).keys()


def test_zones_are_sorted_without_the_excluded(world: World) -> None:
    """Zones are sorted by name; names and ids have the same order."""
    result = look_up(world.aws, "aws:index/getAvailabilityZones:getAvailabilityZones", {"excludeNames": ["us-west-2b"]})

    assert result["names"] == ["us-west-2a", "us-west-2c", "us-west-2d"]
    assert len(result["zoneIds"]) == 3


def test_the_argument_region_selects_the_region(world: World) -> None:
    """The lookup runs in the region of the argument `region`."""
    result = look_up(world.aws, "aws:index/getAvailabilityZones:getAvailabilityZones", {"region": "eu-north-1"})

    assert result["id"] == "eu-north-1"
    assert result["names"][0] == "eu-north-1a"


def test_several_images_need_most_recent(world: World) -> None:
    """Several matching images are refused unless the program sets mostRecent."""
    with pytest.raises(ResourceError, match="more than one"):
        look_up(world.aws, _AMI, _UBUNTU)

    assert look_up(world.aws, _AMI, {**_UBUNTU, "mostRecent": True})["ownerId"] == "099720109477"


def test_a_secure_parameter_has_no_insecure_value(world: World) -> None:
    """The value of a SecureString is never in `insecureValue`."""
    world.aws.call("ssm", "put_parameter", Name="/lab/hidden", Value="hidden", Type="SecureString")

    result = look_up(world.aws, "aws:ssm/getParameter:getParameter", {"name": "/lab/hidden"})

    assert (result["value"], result["insecureValue"]) == ("hidden", "")


def test_a_private_zone_is_found_by_its_vpc(world: World) -> None:
    """A name alone finds public zones only; with a VPC it finds the private one."""
    name = world.aws.call("route53", "get_hosted_zone", Id=services.zone(world))["HostedZone"]["Name"]

    with pytest.raises(ResourceError, match="no matching"):
        look_up(world.aws, _ZONE, {"name": name})

    assert look_up(world.aws, _ZONE, {"name": name, "vpcId": world.vpc})["privateZone"]


def test_a_policy_document_has_the_form_of_the_provider(world: World) -> None:
    """A single value is a string, several are in descending order, and `&{` becomes `${`."""
    text = look_up(world.aws, _POLICY, {"statements": [_STATEMENT]})["json"]

    assert json.loads(text)["Statement"][0] == {
        "Sid": "Plain",
        "Effect": "Deny",
        "Action": ["s3:Put*", "s3:Get*"],
        "Resource": "arn:aws:s3:::lab/${aws:username}/*",
        "Principal": {"AWS": "*"},
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    assert text.startswith('{\n  "Version": "2012-10-17",\n  "Statement": [')


REFUSED: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("aws:index/getRegion:getRegion", {"name": "us-esat-1"}, "no matching EC2 Region"),
    ("aws:ec2/getVpc:getVpc", {"id": "vpc-0123456789abcdef0"}, "no matching EC2 VPC"),
    ("aws:ec2/getSubnets:getSubnets", {"filters": [{"name": "vpc-id", "values": ["vpc-0"]}]}, "no matching"),
    ("aws:ssm/getParameter:getParameter", {"name": "/none"}, "ParameterNotFound"),
    (_AMI, {"nameRegex": "^no such image$"}, "no results"),
    (_AMI, {"mostRecnt": True}, "argument mostRecnt"),
    (_POLICY, {"statements": [_STATEMENT, _STATEMENT]}, "duplicate Sid"),
)


@pytest.mark.parametrize(("token", "args", "message"), REFUSED)
def test_an_invalid_lookup_is_refused(token: str, args: Mapping[str, Any], message: str, world: World) -> None:
    """A search without a match and an unknown argument fail as in AWS."""
    with pytest.raises(ResourceError, match=message):
        look_up(world.aws, token, args)


def test_an_unmodelled_data_function_is_refused(world: World) -> None:
    """The rehearsal does not guess a result."""
    with pytest.raises(UnsupportedError, match="does not model"):
        look_up(world.aws, "aws:lambda/getFunction:getFunction", {})
