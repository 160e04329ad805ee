"""The provider's schema as the SDK holds it."""

import subprocess
import sys
from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import complaints
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.state import STACK_TYPE, Unsupported, Urn, child
from bedplate.rehearsal.state import parse as state_parse
from bedplate.rehearsal.wire import UNKNOWN, Parts, Reference, Secret, matches, parse, restored

VPC = "aws:ec2/vpc:Vpc"


def test_a_type_has_outputs_that_are_empty_where_aws_has_none() -> None:
    """Every property is there, as the provider gives it: "", [], {}, false or zero."""
    found = schema.outputs(VPC)

    assert (found["arn"], found["tagsAll"], found["enableDnsSupport"], found["ipv6NetmaskLength"]) == ("", {}, False, 0)


def test_outputs_are_never_boto3s_names() -> None:
    """A program that reads what only boto3 calls so must fail in the rehearsal too."""
    assert schema.outputs(VPC).keys().isdisjoint({"vpcId", "VpcId", "state", "isDefault"})


def test_inputs_are_by_their_names_on_the_wire() -> None:
    """camelCase, as programs' inputs arrive."""
    assert {"cidrBlock", "region"} <= schema.inputs(VPC)


def test_a_type_that_the_sdk_lacks_is_refused() -> None:
    """A misspelt token is no resource without a model, but no resource at all."""
    with pytest.raises(Unsupported, match="no resource type"):
        schema.resource_class("aws:ec2/vpc:Vcp")


@pytest.mark.parametrize("token", KINDS)
def test_every_kinds_tables_are_the_schemas(token: str) -> None:
    """A kind names only inputs that the SDK has, and moves only outputs that it has."""
    kind = KINDS[token]

    assert {*kind.inputs, *kind.defaults, *kind.computed, *kind.sets} <= schema.inputs(token)
    assert kind.moves <= schema.outputs(token).keys()


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


LOOK = "from bedplate.rehearsal import schema; from bedplate.rehearsal.kinds import KINDS; "
EVERY = "[schema.resource_class(token) for token in KINDS]; "
USE = "import pulumi_aws as aws; aws.iam.Role, aws.ec2.Vpc, aws.s3.Bucket, aws.autoscaling.Group"
LEAF = "from pulumi_aws.iam.role import Role; schema.resource_class('aws:iam/role:Role')"


@pytest.mark.parametrize("code", [LOOK + EVERY + USE, LOOK + LEAF], ids=["package", "leaf"])
def test_a_program_may_import_the_sdk_as_it_likes(code: str) -> None:
    """Whoever loads a package first, the classes are there for both the program and the schema."""
    subprocess.run([sys.executable, "-c", code], check=True)


PATHS: dict[str, Parts] = {
    "tags": ("tags",),
    "tags.owner": ("tags", "owner"),
    "routes[0].cidrBlock": ("routes", 0, "cidrBlock"),
    'tags["a b.c"]': ("tags", "a b.c"),
    "routes[*].cidrBlock": ("routes", "*", "cidrBlock"),
    "*": ("*",),
}


@pytest.mark.parametrize(("path", "parts"), PATHS.items())
def test_a_path_has_names_and_positions(path: str, parts: Parts) -> None:
    """Dots, quotes, positions and stars are read as Pulumi reads them."""
    assert parse(path) == parts


@pytest.mark.parametrize(
    ("pattern", "path", "hit"),
    [
        ("tags", "tags.owner", True),
        ("tags.owner", "tags", False),
        ("tags.*", "tags.owner", True),
        ("routes[*].cidrBlock", "routes[3].cidrBlock", True),
        ("routes[0]", "routes[1]", False),
        ("*", "anything", True),
    ],
)
def test_a_pattern_matches_what_lies_at_or_below_it(pattern: str, path: str, *, hit: bool) -> None:
    """A pattern names a value and all inside it."""
    assert matches(parse(pattern), parse(path)) is hit


RESTORED: dict[str, tuple[str, Any, Any, Any]] = {
    "changed": ("a", {"a": 2, "b": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 2}),
    "added": ("a", {"a": 2}, {}, {}),
    "removed": ("a", {}, {"a": 1}, {"a": 1}),
    "nested": ("a.x", {"a": {"x": 2, "y": 2}}, {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}),
    "every key": ("a.*", {"a": {"x": 2, "y": 2}}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    "item": ("a[0]", {"a": [2, 2]}, {"a": [1, 1]}, {"a": [1, 2]}),
    "every item": ("a[*].x", {"a": [{"x": 2}, {"x": 2}]}, {"a": [{"x": 1}]}, {"a": [{"x": 1}, {"x": 2}]}),
    "not there": ("a.x", {}, {"a": {"x": 1}}, {}),
    "not a mapping": ("a.x", {"a": 1}, {"a": {"x": 1}}, {"a": 1}),
}


@pytest.mark.parametrize(("path", "new", "old", "wanted"), RESTORED.values(), ids=RESTORED.keys())
def test_an_ignored_value_is_as_it_was(path: str, new: object, old: object, wanted: object) -> None:
    """What a path names is put back, or taken away where it was not; all else stays new."""
    assert restored(new, old, parse(path)) == wanted


STACK = f"urn:pulumi:lab::proj::{STACK_TYPE}::proj-lab"
DEEP = "urn:pulumi:lab::proj::t:t:A$t:t:B::box"


@pytest.mark.parametrize("urn", [STACK, DEEP, "urn:pulumi:lab.us-west-2::p::aws:ssm/parameter:Parameter::a::b"])
def test_a_urn_is_its_parts(urn: str) -> None:
    """Taken apart and put together it is the same; a name may hold colons."""
    assert str(state_parse(urn)) == urn


def test_a_type_is_the_last_of_the_types() -> None:
    """What stands before it are its parents'."""
    assert state_parse(DEEP).type == "t:t:B"


@pytest.mark.parametrize(
    ("parent", "types"), [("", "t:t:C"), (STACK, "t:t:C"), (DEEP, "t:t:A$t:t:B$t:t:C")], ids=["none", "stack", "deep"]
)
def test_a_child_carries_all_types_above_it(parent: str, types: str) -> None:
    """The parent's whole qualified type counts, the root stack's does not."""
    assert child("lab", "proj", parent, "t:t:C", "c") == str(Urn("lab", "proj", types, "c"))


def test_what_is_no_urn_is_refused() -> None:
    """A text without a URN's parts is an error, not an empty one."""
    with pytest.raises(ValueError, match="unpack"):
        state_parse("box")
