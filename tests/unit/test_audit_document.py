"""Graphs of unknown origin: read with what they lack, and refused with where and what where they are none."""

import time
from typing import Any

import pytest

from bedplate.audit.document import graph_of, read_graph
from bedplate.audit.rules import STACK_RULES
from bedplate.audit.run import audit
from bedplate.errors import InputError
from tests.support.audited import group, resource, rule


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("", "no JSON", "g.json:1:1"),
        ('[{"urn": "a",\n "type" 3}]', "no JSON", "g.json:2:9"),
        ("[" * 100_000, "", "g.json"),
        ("{}", "a graph is a list of resources, not an object", "g.json"),
        ("null", "not missing", "g.json"),
        ("[1]", "a resource is an object, not a number", "g.json, resource 0"),
        ('[{"type": "t"}]', "urn is a text, not missing", "g.json, resource 0"),
        ('[{"urn": "a", "type": "t"}, {"urn": "b"}]', "type is a text, not missing", "g.json, resource 1"),
        ('[{"urn": "a", "type": "t", "inputs": []}]', "inputs is an object, not a list", "g.json, resource 0"),
    ],
)
def test_what_is_no_graph_is_refused(text: str, what: str, where: str) -> None:
    """The first thing that is wrong, and its place."""
    with pytest.raises(InputError) as refused:
        read_graph(text, "g.json")

    assert what in refused.value.what
    assert refused.value.where.startswith(where)


@pytest.mark.parametrize("odd", [None, 3, "x", [], [None], {"a": None}, [{"b": [3]}], True, "[secret]", "{}", "[3]"])
def test_no_value_ends_a_check(odd: object) -> None:
    """A property may hold anything: somebody else made the graph."""
    keys = (
        "ingress",
        "entries",
        "cidrIpv4",
        "fromPort",
        "policy",
        "tags",
        "metadataOptions",
        "bucket",
        "tagSpecifications",
    )
    kinds = (
        ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/managedPrefixList:ManagedPrefixList", "aws:iam/role:Role"),
        ("aws:s3/bucket:Bucket", "aws:s3/bucketPolicy:BucketPolicy", "aws:ec2/launchTemplate:LaunchTemplate"),
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "pulumi:providers:aws", "aws:kms/key:Key"),
    )
    more = ("blockDeviceMappings", "inlinePolicies", "policyArn", "defaultTags", "assumeRolePolicy", "securityGroupId")

    nodes = [resource(kind) | {"inputs": dict.fromkeys((*keys, *more), odd)} for row in kinds for kind in row]

    assert {told.code for told in audit(graph_of(nodes, "here"))} <= STACK_RULES.keys()


def test_the_least_that_a_resource_may_be_is_read() -> None:
    """A URN and a type: everything else may be missing."""
    assert audit(graph_of([{"urn": "a", "type": "t"}], "here")) == ()


def test_a_graph_of_thousands_is_judged_at_under_a_millisecond_a_resource() -> None:
    """No check compares all with all; the time is the processor's."""
    nodes: list[dict[str, Any]] = [group(f"g{number}") for number in range(1000)]
    nodes += [rule(f"8.8.{number % 200}.0/24", securityGroupId=f"g{number}") for number in range(1000)]
    graph = graph_of(nodes, "here")
    start = time.process_time()

    audit(graph)

    assert time.process_time() - start < len(nodes) / 1000
