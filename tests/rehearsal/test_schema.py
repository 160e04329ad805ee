"""Tests of the schema of resource types, the validation of inputs, property paths and URNs."""

import subprocess
import sys
from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import schema_violations
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.state import STACK_TYPE, UnsupportedError, Urn, child_urn, parse_urn
from bedplate.rehearsal.wire import UNKNOWN, Parts, Reference, Secret, matches, parse_path, restored

VPC = "aws:ec2/vpc:Vpc"


def test_outputs_have_empty_values() -> None:
    """Each output has the value that the provider returns if AWS has none: "", [], {}, false or zero."""
    outputs = schema.outputs(VPC)

    values = [outputs[name] for name in ("arn", "tagsAll", "enableDnsSupport", "ipv6NetmaskLength")]
    assert values == ["", {}, False, 0]


def test_outputs_have_no_boto3_names() -> None:
    """A program that reads a property by its boto3 name must fail in the rehearsal, too."""
    assert schema.outputs(VPC).keys().isdisjoint({"vpcId", "VpcId", "state", "isDefault"})


def test_inputs_have_schema_names() -> None:
    """Names of inputs are camelCase, as programs send them."""
    assert {"cidrBlock", "region"} <= schema.inputs(VPC)


def test_an_unknown_type_is_refused() -> None:
    """A misspelled type token is reported as unknown to the SDK, not as a type without a model."""
    with pytest.raises(UnsupportedError, match="no resource type"):
        schema.resource_class("aws:ec2/vpc:Vcp")


@pytest.mark.parametrize("token", KINDS)
def test_kinds_use_names_of_the_schema(token: str) -> None:
    """A kind lists only inputs and outputs that the SDK has."""
    kind = KINDS[token]

    assert {*kind.inputs, *kind.defaults, *kind.computed, *kind.sets} <= schema.inputs(token)
    assert kind.changed_by_update <= schema.outputs(token).keys()


SUBNET = "aws:ec2/subnet:Subnet"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
BUCKET = "aws:s3/bucketVersioning:BucketVersioning"
TABLE = "aws:ec2/routeTable:RouteTable"
GROUP = "aws:ec2/placementGroup:PlacementGroup"

# Type, invalid inputs, reported key, part of the reason, valid counterpart.
INVALID: dict[str, tuple[str, dict[str, Any], str, str, dict[str, Any]]] = {
    "misspelled": (SUBNET, {"vpcId": "v", "cidrBlok": "c"}, "cidrBlok", "not an input",
                   {"vpcId": "v", "cidrBlock": "c"}),
    "missing": (SUBNET, {"cidrBlock": "c"}, "vpcId", "required", {"vpcId": "v"}),
    "number for string": (SUBNET, {"vpcId": 5}, "vpcId", "must be a string", {"vpcId": "5"}),
    "string for number": (TEMPLATE, {"metadataOptions": {"httpPutResponseHopLimit": "1"}},
                        "metadataOptions.httpPutResponseHopLimit", "an integer",
                        {"metadataOptions": {"httpPutResponseHopLimit": 1}}),
    "boolean for number": (TEMPLATE, {"metadataOptions": {"httpPutResponseHopLimit": True}},
                         "metadataOptions.httpPutResponseHopLimit", "an integer",
                         {"metadataOptions": {"httpPutResponseHopLimit": 1}}),
    "string for boolean": (SUBNET, {"vpcId": "v", "mapPublicIpOnLaunch": "maybe"}, "mapPublicIpOnLaunch", "a boolean",
                       {"vpcId": "v", "mapPublicIpOnLaunch": True}),
    "list for string": (SUBNET, {"vpcId": ["v"]}, "vpcId", "must be a string", {"vpcId": "v"}),
    "string for list": (TEMPLATE, {"vpcSecurityGroupIds": "sg"}, "vpcSecurityGroupIds", "must be a list",
                      {"vpcSecurityGroupIds": ["sg"]}),
    "string for mapping": (SUBNET, {"vpcId": "v", "tags": "t"}, "tags", "must be a mapping",
                         {"vpcId": "v", "tags": {}}),
    "string for block": (BUCKET, {"bucket": "b", "versioningConfiguration": "x"}, "versioningConfiguration",
                       "must be a mapping", {"bucket": "b", "versioningConfiguration": {"status": "Enabled"}}),
    "item of a mapping": (SUBNET, {"vpcId": "v", "tags": {"a": 1}}, "tags.a", "must be a string",
                          {"vpcId": "v", "tags": {"a": "1"}}),
    "misspelled inside": (TABLE, {"vpcId": "v", "routes": [{"cidr": "c"}]}, "routes[0].cidr", "not an input",
                        {"vpcId": "v", "routes": [{"cidrBlock": "c"}]}),
    "missing inside": (BUCKET, {"bucket": "b", "versioningConfiguration": {}}, "versioningConfiguration.status",
                       "required", {"bucket": "b", "versioningConfiguration": {"status": "Enabled"}}),
    "whole resource": (SUBNET, {"vpcId": Reference("urn", "v")}, "vpcId", "is a resource", {"vpcId": "v"}),
}  # fmt: skip


@pytest.mark.parametrize(("token", "invalid", "key", "reason", "valid"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_input_is_reported(
    token: str, invalid: dict[str, Any], key: str, reason: str, valid: dict[str, Any]
) -> None:
    """An invalid input is reported once, with its key and what it must be."""
    reports = [(complaint.key, reason in complaint.reason) for complaint in schema_violations(token, invalid)]

    assert reports == [(key, True)]
    assert valid


@pytest.mark.parametrize(("token", "invalid", "key", "reason", "valid"), INVALID.values(), ids=INVALID.keys())
def test_a_valid_counterpart_is_accepted(
    token: str, invalid: dict[str, Any], key: str, reason: str, valid: dict[str, Any]
) -> None:
    """The corrected inputs are valid."""
    assert list(schema_violations(token, valid)) == []


@pytest.mark.parametrize(
    "inputs",
    [{"vpcId": UNKNOWN}, {"vpcId": Secret("v")}, {"vpcId": Secret(UNKNOWN)}, {"vpcId": "v", "cidrBlock": None}],
    ids=["unknown", "secret", "unknown secret", "missing"],
)
def test_unknown_secret_and_missing_values_are_accepted(inputs: dict[str, Any]) -> None:
    """An unknown value is valid, a secret is checked by its value, and None counts as missing."""
    assert list(schema_violations(SUBNET, inputs)) == []


@pytest.mark.parametrize("hidden", [Secret(5), {"a": Secret({"hunter2": 1})}, Secret(["hunter2"])])
def test_a_report_shows_no_secret(hidden: object) -> None:
    """The report of an invalid secret does not contain it."""
    key = "tags" if isinstance(hidden, dict) else "vpcId"
    reports = list(schema_violations(SUBNET, {"vpcId": "v", key: hidden}))

    assert reports
    assert "hunter2" not in str(reports)


def test_all_invalid_inputs_are_reported() -> None:
    """All invalid inputs of a resource are reported in one pass."""
    reports = schema_violations(SUBNET, {"cidrBlok": "c", "tags": {"a": 1}})

    assert {complaint.key for complaint in reports} == {"vpcId", "cidrBlok", "tags.a"}


def test_a_value_missing_in_an_old_enumeration_is_accepted() -> None:
    """AWS has placement strategies that the enumeration of the SDK lacks."""
    assert list(schema_violations(GROUP, {"strategy": "partition"})) == []


IMPORTS = "from bedplate.rehearsal import schema; from bedplate.rehearsal.kinds import KINDS; "
ALL_KINDS = "[schema.resource_class(token) for token in KINDS]; "
USE = "import pulumi_aws as aws; aws.iam.Role, aws.ec2.Vpc, aws.s3.Bucket, aws.autoscaling.Group"
LEAF = "from pulumi_aws.iam.role import Role; schema.resource_class('aws:iam/role:Role')"


@pytest.mark.parametrize("code", [IMPORTS + ALL_KINDS + USE, IMPORTS + LEAF], ids=["package", "leaf"])
def test_the_import_order_of_the_sdk_does_not_matter(code: str) -> None:
    """If the program or the schema imports an SDK package first, both find its classes."""
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
def test_a_path_has_names_and_indexes(path: str, parts: Parts) -> None:
    """Dots, quotes, indexes and stars are parsed as in Pulumi."""
    assert parse_path(path) == parts


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
def test_a_pattern_matches_a_value_and_its_parts(pattern: str, path: str, *, hit: bool) -> None:
    """A pattern names a value and everything inside it."""
    assert matches(parse_path(pattern), parse_path(path)) is hit


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


@pytest.mark.parametrize(("path", "new", "old", "expected"), RESTORED.values(), ids=RESTORED.keys())
def test_restored_values_are_the_old_ones(path: str, new: object, old: object, expected: object) -> None:
    """The old values at a path are restored, or removed if there were none; others stay new."""
    assert restored(new, old, parse_path(path)) == expected


STACK = f"urn:pulumi:lab::proj::{STACK_TYPE}::proj-lab"
DEEP = "urn:pulumi:lab::proj::t:t:A$t:t:B::box"


@pytest.mark.parametrize("urn", [STACK, DEEP, "urn:pulumi:lab.us-west-2::p::aws:ssm/parameter:Parameter::a::b"])
def test_a_urn_is_parsed_and_formatted(urn: str) -> None:
    """A parsed URN has the same text; a name may contain colons."""
    assert str(parse_urn(urn)) == urn


def test_a_type_is_the_last_of_the_types() -> None:
    """The types before it belong to the parents."""
    assert parse_urn(DEEP).type == "t:t:B"


@pytest.mark.parametrize(
    ("parent", "types"), [("", "t:t:C"), (STACK, "t:t:C"), (DEEP, "t:t:A$t:t:B$t:t:C")], ids=["none", "stack", "deep"]
)
def test_a_child_urn_holds_the_types_of_its_parents(parent: str, types: str) -> None:
    """The types of all parents count, except the stack."""
    assert child_urn("lab", "proj", parent, "t:t:C", "c") == str(Urn("lab", "proj", types, "c"))


def test_an_invalid_urn_is_refused() -> None:
    """A text without the parts of a URN is an error."""
    with pytest.raises(ValueError, match="unpack"):
        parse_urn("box")
