"""`bedplate audit-graph`: graphs are read completely or refused, and seeded defects are found."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.errors import InputError
from bedplate.graph.audit.document import graph_of, read_graph
from bedplate.graph.audit.run import STACK_RULES, audit
from tests.testlab.rehearsal.graphs import codes, faults, group, prefix_list, resource, rule


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("", "invalid JSON", "g.json:1:1"),
        ('[{"urn": "a",\n "type" 3}]', "invalid JSON", "g.json:2:9"),
        ("[" * 100_000, "", "g.json"),
        ("{}", "a graph must be a list of resources, not an object", "g.json"),
        ("null", "not null", "g.json"),
        ("[1]", "a resource must be an object, not a number", "g.json, resource 0"),
        ('[{"type": "t"}]', "`urn` is missing", "g.json, resource 0"),
        ('[{"urn": "a", "type": "t"}, {"urn": "b"}]', "`type` is missing", "g.json, resource 1"),
        ('[{"urn": "a", "type": "t", "inputs": []}]', "`inputs` must be an object, not a list", "g.json, resource 0"),
    ],
)
def test_what_is_no_graph_is_refused(text: str, what: str, where: str) -> None:
    """The message names the first error and its position."""
    with pytest.raises(InputError) as refused:
        read_graph(text, "g.json")

    assert what in refused.value.what
    assert refused.value.where.startswith(where)


@pytest.mark.parametrize("odd", [None, 3, "x", [], [None], {"a": None}, [{"b": [3]}], True, "[secret]", "{}", "[3]"])
def test_no_value_ends_a_check(odd: object) -> None:
    """A property may hold any JSON value."""
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

    assert {fault.code for fault in audit(graph_of(nodes, "here"))} <= STACK_RULES.keys()


def test_the_least_that_a_resource_may_be_is_read() -> None:
    """Only the URN and the type are required."""
    assert audit(graph_of([{"urn": "a", "type": "t"}], "here")) == ()


def test_a_graph_of_thousands_is_judged_at_under_a_millisecond_a_resource() -> None:
    """No check is quadratic; CPU time is measured."""
    nodes: list[dict[str, Any]] = [group(f"g{number}") for number in range(1000)]
    nodes += [rule(f"8.8.{number % 200}.0/24", securityGroupId=f"g{number}") for number in range(1000)]
    graph = graph_of(nodes, "here")
    start = time.process_time()

    audit(graph)

    assert time.process_time() - start < len(nodes) / 1000


QUARTERS = ("0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/2")
IPV6_QUARTERS = ("::/2", "4000::/2", "8000::/2", "c000::/2")
SINGLE = {"cidrBlocks": ["0.0.0.0/0"], "protocol": "tcp", "fromPort": 22, "toPort": 22}


def inline(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the security group with one inline rule for SSH."""
    return group(ingress=[{"protocol": "tcp", "fromPort": 22, "toPort": 22} | more])


def classic(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a rule of the older resource type, which takes lists."""
    inputs: dict[str, Any] = {
        "type": "ingress",
        "securityGroupId": "nodes",
        "protocol": "tcp",
        "fromPort": 22,
        "toPort": 22,
    }
    return resource("aws:ec2/securityGroupRule:SecurityGroupRule", **(inputs | more))


def entry(block: str) -> dict[str, Any]:
    """Return a separate entry of the prefix list pl-1."""
    return resource("aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry", block, prefixListId="pl-1", cidr=block)


def open_to(ports: str) -> dict[str, Any]:
    """Return a security group whose tag names these ports."""
    return group(tags={"owner": "infra", "bedplate:public": ports})


EXPOSED: dict[str, Sequence[dict[str, Any]]] = {
    "ssh, plain": [group(), rule("0.0.0.0/0")],
    "ssh, plain IPv6": [group(), rule("::/0")],
    "nfs over tcp": [group(), rule("0.0.0.0/0", (2049, 2049))],
    "nfs over udp": [group(), rule("0.0.0.0/0", (2049, 2049), "udp")],
    "port mapper": [group(), rule("0.0.0.0/0", (111, 111))],
    "every protocol": [group(), rule("0.0.0.0/0", protocol="-1")],
    "every port of tcp": [group(), rule("0.0.0.0/0", (0, 65535))],
    "protocol by number": [group(), rule("0.0.0.0/0", protocol="6")],
    "a range with ssh in it": [group(), rule("0.0.0.0/0", (20, 25))],
    "halves": [group(), rule("0.0.0.0/1"), rule("128.0.0.0/1")],
    "one half": [group(), rule("128.0.0.0/1")],
    "quarters": [group(), *(rule(block) for block in QUARTERS)],
    "host bits set": [group(), rule("1.2.3.4/0")],
    "a /8 of somebody's": [group(), rule("8.0.0.0/8")],
    "just more than a /16": [group(), rule("8.8.0.0/16"), rule("9.9.9.9/32")],
    "many small ones": [group(), *(rule(f"8.{number}.0.0/17") for number in range(3))],
    "IPv6 halves": [group(), rule("::/1"), rule("8000::/1")],
    "IPv6 quarters": [group(), *(rule(block) for block in IPV6_QUARTERS)],
    "all that is routed of IPv6": [group(), rule("2000::/3")],
    "inline": [inline(cidrBlocks=["0.0.0.0/0"])],
    "inline IPv6": [inline(ipv6CidrBlocks=["::/0"])],
    "inline halves": [inline(cidrBlocks=["0.0.0.0/1", "128.0.0.0/1"])],
    "inline quarters": [inline(cidrBlocks=[*QUARTERS])],
    "inline IPv6 halves": [inline(ipv6CidrBlocks=["::/1", "8000::/1"])],
    "one half inline, one apart": [inline(cidrBlocks=["8.8.0.0/16"]), rule("9.9.0.0/16")],
    "older rule": [group(), classic(cidrBlocks=["0.0.0.0/0"])],
    "older rule, quarters": [group(), classic(cidrBlocks=[*QUARTERS])],
    "older rule, IPv6": [group(), classic(ipv6CidrBlocks=["::/0"])],
    "older rule, a list": [group(), classic(prefixListIds=["pl-1"]), prefix_list("0.0.0.0/0")],
    "a list that holds all": [group(), rule(prefixListId="pl-1"), prefix_list("0.0.0.0/0")],
    "a list that holds halves": [group(), rule(prefixListId="pl-1"), prefix_list("0.0.0.0/1", "128.0.0.0/1")],
    "a list that holds quarters": [group(), rule(prefixListId="pl-1"), prefix_list(*QUARTERS)],
    "a list that holds IPv6": [group(), rule(prefixListId="pl-1"), prefix_list("::/0")],
    "a list whose entries stand apart": [
        *(group(), rule(prefixListId="pl-1"), prefix_list()),
        *(entry("0.0.0.0/1"), entry("128.0.0.0/1")),
    ],
    "one half in a list, one apart": [
        group(),
        rule("9.9.0.0/16"),
        rule(prefixListId="pl-1"),
        prefix_list("8.8.0.0/16"),
    ],
    "a list, inline": [inline(prefixListIds=["pl-1"]), prefix_list("0.0.0.0/0")],
    "self and the world": [inline(self=True, cidrBlocks=["0.0.0.0/0"])],
    "itself and the world, older": [group(), classic(self=True, cidrBlocks=["0.0.0.0/0"])],
    "a group outside the graph": [rule("0.0.0.0/0")],
    "ssh, another port named": [open_to("tcp/222 udp/22"), rule("0.0.0.0/0")],
    "the default group": [resource("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", ingress=[SINGLE])],
}
FINE: dict[str, Sequence[dict[str, Any]]] = {
    "named ports": [
        *(open_to("tcp/443 udp/1194"), rule("0.0.0.0/0", (443, 443))),
        rule("0.0.0.0/0", (1194, 1194), "udp"),
    ],
    "a named service": [open_to("tcp/22"), rule("0.0.0.0/0")],
    "a named range": [open_to("tcp/80 tcp/81"), rule("::/0", (80, 81))],
    "a port for one /16": [group(), rule("8.8.0.0/16", (443, 443))],
    "ping": [group(), rule("0.0.0.0/0", (8, 0), "icmp")],
    "itself": [group(), rule(referencedSecurityGroupId="nodes", protocol="-1")],
    "itself, inline": [group(ingress=[{"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}])],
    "itself, older": [group(), classic(self=True, protocol="-1", fromPort=0, toPort=0)],
    "another group, older": [group(), classic(sourceSecurityGroupId="edge")],
    "private blocks": [group(), rule("10.0.0.0/8"), rule("172.16.0.0/12"), rule("192.168.0.0/16")],
    "carriers' addresses": [group(), rule("100.64.0.0/10")],
    "one address": [group(), rule("8.20.30.40/32", protocol="-1")],
    "a /16 and no more": [group(), rule("8.8.0.0/16"), rule("8.8.8.0/24")],
    "a site's IPv6": [group(), rule("2a00:1450:4001::/48")],
    "IPv6 of its own": [group(), rule("fc00::/7")],
    "a list of offices": [group(), rule(prefixListId="pl-1"), prefix_list("8.20.30.0/24", "10.0.0.0/8")],
    "a list of a site's IPv6": [group(), rule(prefixListId="pl-1"), prefix_list("2a00:1450:4001::/48")],
    "an empty list": [group(), rule(prefixListId="pl-1"), prefix_list()],
    "what goes out, older": [group(), classic(type="egress", protocol="-1", cidrBlocks=["0.0.0.0/0"])],
    "halves of two groups": [group(), rule("8.8.0.0/16"), rule("9.9.0.0/16", securityGroupId="others")],
    "what goes out": [group(egress=[{"protocol": "-1", "cidrBlocks": ["0.0.0.0/0"]}])],
    "ssh's number over udp": [open_to("udp/22"), rule("0.0.0.0/0", (22, 22), "udp")],
    "a masked block": [group(), rule("[secret]")],
}


def test_the_set_is_of_forty() -> None:
    """The number of cases does not shrink."""
    assert len(EXPOSED) == 41


@pytest.mark.parametrize("name", EXPOSED)
def test_an_exposure_is_found(name: str) -> None:
    """In any notation, across rules, and in prefix lists."""
    assert "S101" in codes(EXPOSED[name])


@pytest.mark.parametrize("name", FINE)
def test_what_is_no_exposure_passes(name: str) -> None:
    """There are no false positives."""
    assert codes(FINE[name]) == set()


def test_a_service_that_gives_itself_away_is_told() -> None:
    """Jupyter and the Ray dashboard run any code that is sent to them."""
    exposures = faults([group(), rule("0.0.0.0/0", (8000, 9000))])

    assert [fault.code for fault in exposures] == ["S102"]
    assert "Jupyter (8888)" in exposures[0].message


@pytest.mark.parametrize("port", [2049, 2379, 2380, 6443, 9090, 9100, 9400, 10250, 10255, 10257, 10259])
def test_a_service_of_a_cluster_open_to_the_internet_is_an_error(port: int) -> None:
    """Also in a graph that is not of bedplate."""
    (exposure,) = faults([group(), rule("0.0.0.0/0", (port, port))])

    assert (exposure.code, exposure.level.value) == ("S101" if port == 2049 else "S102", "error")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([group(), rule("0.0.0.0/0", (9101, 9101))], "tcp/9101 is open to 3,7"),
        ([open_to("tcp/443"), rule("0.0.0.0/0", (441, 444))], "tcp/441-442, tcp/444 is open"),
        ([open_to("tcp/22"), rule("0.0.0.0/0", (22, 23))], "tcp/23 is open"),
        ([open_to("tcp/443"), rule("0.0.0.0/0", (443, 443), "udp")], "udp/443 is open"),
        ([open_to("443 tcp/x"), rule("0.0.0.0/0", (443, 443))], "tcp/443 is open"),
        ([group(), rule("8.8.0.0/16", (80, 90)), rule("9.9.0.0/16", (85, 99))], "tcp/85-90 is open"),
    ],
)
def test_a_port_that_the_tag_does_not_name_is_reported(resources: list[dict[str, Any]], message: str) -> None:
    """A warning, and an error in a graph with a component of bedplate."""
    component = resource("bedplate:stacks:NodeFirewall")
    ((foreign,), (own,)) = faults(resources), faults([component, *resources])

    assert foreign.message.startswith(message)
    assert (foreign.code, foreign.level.value) == ("S109", "warning")
    assert (own.code, own.level.value, own.message) == ("S108", "error", foreign.message)


def test_an_exposure_is_told_once_with_all_that_it_opens() -> None:
    """One fault for each rule, with its services and the number of addresses."""
    (fault,) = faults([group(), rule("0.0.0.0/0", protocol="-1")])

    assert fault.key == "cidrIpv4"
    assert fault.message.startswith("every port is open to 3,7")


def test_rules_that_are_wide_together_are_told_together() -> None:
    """Each rule alone is not too wide."""
    (fault,) = faults([group(), *(rule(f"8.{number}.0.0/17") for number in range(3))])

    assert fault.message.endswith("by 3 rules together)")


def test_a_list_that_the_graph_lacks_is_a_warning() -> None:
    """Such a list can be AWS's own or contain the whole internet."""
    (fault,) = faults([group(), rule(prefixListId="pl-63a5400a")])

    assert (fault.code, fault.level.value) == ("S103", "warning")


def test_a_rule_of_an_unseen_id_is_found_by_what_it_depends_on() -> None:
    """Before creation there are no ids, only dependencies."""
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    target = group()
    halves = [rule(block, securityGroupId=unknown) for block in ("8.8.0.0/16", "9.9.0.0/16")]
    on = {"property_dependencies": {"securityGroupId": [target["urn"]]}}

    assert codes([target, *(half | on for half in halves)]) == {"S101"}


Case = list[dict[str, Any]]
TABLE = Path(__file__).parents[1] / "data" / "audit" / "rules.yaml"
EXAMPLES: dict[str, dict[str, list[Case]]] = YAML(typ="safe").load(TABLE)
# Judged by a table of their own (test_audit_exposure).
ELSEWHERE = {"S101", "S102", "S103", "S108", "S109"}


def cases(kind: str) -> Iterator[Any]:
    """Yield each case of a kind with its rule."""
    for code, example in EXAMPLES.items():
        for index, case in enumerate(example[kind]):
            yield pytest.param(code, case, id=f"{code}-{index}")


def graph(case: Case) -> list[dict[str, Any]]:
    """Return the resources of a case as a graph."""
    return [_resource(index, dict(fields)) for index, fields in enumerate(case)]


def _resource(index: int, fields: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = fields.pop("+", {})
    ((token, inputs),) = fields.items()
    return resource(token, f"r{index}", **inputs) | more


@pytest.mark.parametrize(("code", "case"), list(cases("bad")))
def test_a_planted_defect_is_found(code: str, case: Case) -> None:
    """At a resource of the graph, with a fix."""
    matches = [fault for fault in faults(graph(case)) if fault.code == code]

    assert matches
    assert all(fault.urn in {node["urn"] for node in graph(case)} and fault.message and fault.fix for fault in matches)


@pytest.mark.parametrize(("code", "case"), list(cases("good")))
def test_its_good_twin_passes(code: str, case: Case) -> None:
    """The valid counterpart violates no rule at all."""
    assert codes(graph(case)) == set()


def test_every_rule_has_its_example() -> None:
    """Each rule has a seeded defect."""
    assert set(EXAMPLES) | ELSEWHERE == set(STACK_RULES)
