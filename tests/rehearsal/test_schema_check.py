"""Inputs held against the provider's schema: each kind of mistake, and its good twin."""

from typing import Any

import pytest

from bedplate.rehearsal.schema_check import complaints
from bedplate.rehearsal.unknown import UNKNOWN
from bedplate.rehearsal.wire import Reference, Secret

SUBNET = "aws:ec2/subnet:Subnet"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
BUCKET = "aws:s3/bucketVersioning:BucketVersioning"
TABLE = "aws:ec2/routeTable:RouteTable"
GROUP = "aws:ec2/placementGroup:PlacementGroup"

# Type, inputs at fault, key of the complaint, part of its reason, the same without the fault.
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str, dict[str, Any]]] = {
    "misspelt": (SUBNET, {"vpcId": "v", "cidrBlok": "c"}, "cidrBlok", "no input", {"vpcId": "v", "cidrBlock": "c"}),
    "missing": (SUBNET, {"cidrBlock": "c"}, "vpcId", "required", {"vpcId": "v"}),
    "number for text": (SUBNET, {"vpcId": 5}, "vpcId", "should be text", {"vpcId": "5"}),
    "text for number": (TEMPLATE, {"metadataOptions": {"httpPutResponseHopLimit": "1"}},
                        "metadataOptions.httpPutResponseHopLimit", "whole number",
                        {"metadataOptions": {"httpPutResponseHopLimit": 1}}),
    "truth for number": (TEMPLATE, {"metadataOptions": {"httpPutResponseHopLimit": True}},
                         "metadataOptions.httpPutResponseHopLimit", "whole number",
                         {"metadataOptions": {"httpPutResponseHopLimit": 1}}),
    "text for truth": (SUBNET, {"vpcId": "v", "mapPublicIpOnLaunch": "maybe"}, "mapPublicIpOnLaunch", "true or false",
                       {"vpcId": "v", "mapPublicIpOnLaunch": True}),
    "list for text": (SUBNET, {"vpcId": ["v"]}, "vpcId", "should be text", {"vpcId": "v"}),
    "text for list": (TEMPLATE, {"vpcSecurityGroupIds": "sg"}, "vpcSecurityGroupIds", "should be a list",
                      {"vpcSecurityGroupIds": ["sg"]}),
    "text for mapping": (SUBNET, {"vpcId": "v", "tags": "t"}, "tags", "should be a mapping",
                         {"vpcId": "v", "tags": {}}),
    "text for block": (BUCKET, {"bucket": "b", "versioningConfiguration": "x"}, "versioningConfiguration",
                       "should be a mapping", {"bucket": "b", "versioningConfiguration": {"status": "Enabled"}}),
    "item of a mapping": (SUBNET, {"vpcId": "v", "tags": {"a": 1}}, "tags.a", "should be text",
                          {"vpcId": "v", "tags": {"a": "1"}}),
    "misspelt inside": (TABLE, {"vpcId": "v", "routes": [{"cidr": "c"}]}, "routes[0].cidr", "no input",
                        {"vpcId": "v", "routes": [{"cidrBlock": "c"}]}),
    "missing inside": (BUCKET, {"bucket": "b", "versioningConfiguration": {}}, "versioningConfiguration.status",
                       "required", {"bucket": "b", "versioningConfiguration": {"status": "Enabled"}}),
    "whole resource": (SUBNET, {"vpcId": Reference("urn", "v")}, "vpcId", "whole resource", {"vpcId": "v"}),
}  # fmt: skip


@pytest.mark.parametrize(("token", "bad", "key", "reason", "good"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found(token: str, bad: dict[str, Any], key: str, reason: str, good: dict[str, Any]) -> None:
    """A mistake makes one complaint that names its key and says what should be there."""
    found = list(complaints(token, bad))

    assert [(one.key, reason in one.reason) for one in found] == [(key, True)]
    assert good


@pytest.mark.parametrize(("token", "bad", "key", "reason", "good"), MISTAKES.values(), ids=MISTAKES.keys())
def test_the_good_twin_passes(token: str, bad: dict[str, Any], key: str, reason: str, good: dict[str, Any]) -> None:
    """The same inputs without the mistake bring no complaint."""
    assert list(complaints(token, good)) == []


@pytest.mark.parametrize(
    "inputs",
    [{"vpcId": UNKNOWN}, {"vpcId": Secret("v")}, {"vpcId": Secret(UNKNOWN)}, {"vpcId": "v", "cidrBlock": None}],
    ids=["unknown", "secret", "unknown secret", "left out"],
)
def test_marks_are_no_mistakes(inputs: dict[str, Any]) -> None:
    """An unknown value may be anything, a secret is judged by what it hides, None is not given."""
    assert list(complaints(SUBNET, inputs)) == []


@pytest.mark.parametrize("hidden", [Secret(5), {"a": Secret({"hunter2": 1})}, Secret(["hunter2"])])
def test_a_complaint_shows_no_secret(hidden: object) -> None:
    """What is wrong with a secret is told without it."""
    key = "tags" if isinstance(hidden, dict) else "vpcId"
    found = list(complaints(SUBNET, {"vpcId": "v", key: hidden}))

    assert found
    assert "hunter2" not in str(found)


def test_several_mistakes_are_told_at_once() -> None:
    """Every mistake of a resource is found in one pass."""
    found = complaints(SUBNET, {"cidrBlok": "c", "tags": {"a": 1}})

    assert {one.key for one in found} == {"vpcId", "cidrBlok", "tags.a"}


def test_an_enumeration_that_lags_behind_proves_nothing() -> None:
    """AWS has values that the SDK's enumeration of placement strategies lacks."""
    assert list(complaints(GROUP, {"strategy": "partition"})) == []
