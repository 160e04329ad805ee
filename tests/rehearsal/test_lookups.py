"""Tests of data functions: their results and the arguments that they refuse."""

from typing import Any

import pytest

from bedplate.rehearsal.lookups import LOOKUPS, empty_result, look_up
from bedplate.rehearsal.state import ResourceError, UnsupportedError
from tests.testlab.kinds.world import World

_ZONES = "aws:index/getAvailabilityZones:getAvailabilityZones"

# Token, arguments, a property of the result and its value.
RESULTS: tuple[tuple[str, dict[str, Any], str, object], ...] = (
    ("aws:index/getRegion:getRegion", {}, "endpoint", "ec2.us-west-2.amazonaws.com"),
    ("aws:index/getPartition:getPartition", {}, "dnsSuffix", "amazonaws.com"),
    ("aws:index/getCallerIdentity:getCallerIdentity", {}, "accountId", "111122223333"),
    (_ZONES, {"state": "available"}, "names", ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]),
)


@pytest.mark.parametrize(("token", "args", "key", "value"), RESULTS)
def test_a_result_has_the_properties_of_the_sdk(
    token: str, args: dict[str, Any], key: str, value: object, world: World
) -> None:
    """A result has exactly the properties of the SDK's class, with values from AWS."""
    result = look_up(world.aws, token, args)

    assert result.keys() == empty_result(token).keys()
    assert result[key] == value


@pytest.mark.parametrize("token", sorted(LOOKUPS))
def test_arguments_are_those_of_the_sdk(token: str) -> None:
    """An argument is also a property of the result."""
    assert LOOKUPS[token].args <= empty_result(token).keys()


def test_the_argument_region_selects_the_region(world: World) -> None:
    """The lookup runs in the region of the argument `region`."""
    result = look_up(world.aws, _ZONES, {"region": "eu-north-1"})

    assert result["id"] == "eu-north-1"
    assert result["names"][0] == "eu-north-1a"


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("aws:index/getRegion:getRegion", {"name": "us-esat-1"}, "no matching EC2 Region"),
    (_ZONES, {"excludeNames": ["us-west-2b"]}, "argument excludeNames"),
)


@pytest.mark.parametrize(("token", "args", "message"), REFUSED)
def test_an_invalid_lookup_is_refused(token: str, args: dict[str, Any], message: str, world: World) -> None:
    """An unknown region and an argument without a model fail."""
    with pytest.raises(ResourceError, match=message):
        look_up(world.aws, token, args)


def test_an_unmodelled_data_function_is_refused(world: World) -> None:
    """The rehearsal does not guess a result; it names the functions that it has."""
    with pytest.raises(UnsupportedError, match=r"does not model data function aws:ec2/getAmi:getAmi; .*getRegion"):
        look_up(world.aws, "aws:ec2/getAmi:getAmi", {})
