"""Tests of the reachability walk with seeded defects: each removes or changes one resource of a valid network."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from bedplate.graph.reach import Packet, Trip, read_fabric, trip
from bedplate.plan.reachability import Flow, find_endpoint
from tests.testlab.rehearsal.live import graph_of, plan_named

FLEET = "two sites"
Graph = list[dict[str, Any]]
Defect = Callable[[Graph], None]

INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
ROUTE, HUB_ROUTE = "aws:ec2/route:Route", "aws:ec2transitgateway/route:Route"


@pytest.fixture
def graph() -> Graph:
    """Return a copy of a valid network of two regions, two sites and laptops."""
    return deepcopy(list(graph_of(FLEET)))


def trip_in(graph: Graph, source: str, target: str, flow: Flow = Flow()) -> Trip:  # noqa: B008  Flow is frozen
    """Return the trip between two places of the fleet, by name."""
    start, end = (find_endpoint(plan_named(FLEET), name) for name in (source, target))
    return trip(read_fabric(graph), Packet(int(start.address), int(end.address), flow.protocol, flow.port))


def resources(graph: Graph, token: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the resources of a type whose name matches a pattern."""
    yield from (node for node in graph if node["type"] == token and re.fullmatch(name, node["name"]))


def without(token: str, name: str) -> Defect:
    """Return a defect that removes resources."""

    def remove(graph: Graph) -> None:
        removed = [node["urn"] for node in resources(graph, token, name)]
        assert removed
        graph[:] = [node for node in graph if node["urn"] not in removed]

    return remove


def changed(token: str, name: str, **values: object) -> Defect:
    """Return a defect that changes the values of resources."""

    def change(graph: Graph) -> None:
        nodes = list(resources(graph, token, name))
        assert nodes
        for node in nodes:
            node["inputs"] |= values
            node["outputs"] |= values

    return change


@dataclass(frozen=True)
class Loss:
    """A defect, the connection that it breaks, the expected reason, and whether only the answer is lost."""

    defect: Defect
    source: str
    target: str
    reason: str
    answer: bool


LOSSES: dict[str, Loss] = {
    "a VPC's route": Loss(
        without(ROUTE, "lab-us-west-2-us-west-2a-nodes-to-us-east-1"),
        *("us-west-2a", "us-east-1a", "no route to the target|NAT gateway routes only to the internet", False),
    ),
    "the route of the answer": Loss(
        without(ROUTE, "lab-us-east-1-us-east-1a-nodes-to-us-west-2"),
        *("us-west-2a", "us-east-1a", "NAT gateway routes only to the internet", True),
    ),
    "a transit gateway's route": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-us-west-2"),
        *("us-west-2a", "us-east-1a", "table lab .us-east-1. has no route to the target", True),
    ),
    "the route to the VPC": Loss(
        without(HUB_ROUTE, "lab-to-us-east-1"),
        *("us-west-2a", "us-east-1a", "table lab .us-east-1. has no route to the target", False),
    ),
    "the accepter": Loss(
        without("aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter", ".*"),
        *("us-west-2a", "us-east-1a", "not accepted", False),
    ),
    "an association": Loss(
        without("aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation", "lab-us-east-1-to-us-west-2"),
        *("us-west-2a", "us-east-1a", "has no transit gateway route table", False),
    ),
    "a rule for nodes of another region": Loss(
        without(INGRESS, "lab-nodes-all-from-nodes-us-west-2-.*"),
        *("us-west-2a", "us-east-1a", "no security group of .* allows it inbound", False),
    ),
    "the gateway's forwarding": Loss(
        changed("aws:ec2/networkInterface:NetworkInterface", "lab-laptops", sourceDestCheck=True),
        *("laptops.us-west-2", "us-east-1a", "source/destination check is on", False),
    ),
    "the route to the laptops": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-laptops-us-west-2"),
        *("laptops.us-west-2", "us-east-1a", "table lab .us-east-1. has no route to the target", True),
    ),
    "a site's route": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-site-cellar"),
        *("gate.cellar", "us-east-1a", "has no route to the target|not accepted|no route", True),
    ),
    "a blackhole route": Loss(
        changed(HUB_ROUTE, "lab-us-east-1-to-us-west-2", blackhole=True),
        *("us-west-2a", "us-east-1a", "has no route to the target", True),
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_defect_is_the_reason_of_the_lost_packet(loss: Loss, graph: Graph) -> None:
    """The connection worked before the defect; after it, the packet or only the answer is lost for that reason."""
    assert trip_in(graph, loss.source, loss.target).answered

    loss.defect(graph)

    walk = trip_in(graph, loss.source, loss.target)
    lost = walk.back if loss.answer else walk.out
    assert walk.out.delivered is loss.answer
    assert lost is not None
    assert re.search(loss.reason, lost.end)


def acl(*, ins: list[dict[str, object]], outs: list[dict[str, object]], subnet: str) -> dict[str, Any]:
    """Return a network ACL of one subnet."""
    values = {"subnetIds": [subnet], "ingress": ins, "egress": outs}
    return {"urn": "acl", "type": "aws:ec2/networkAcl:NetworkAcl", "name": "acl", "id": "acl-1", "inputs": values}


def entry(first: int, last: int) -> dict[str, object]:
    """Return an ACL entry that allows TCP ports from and to anywhere."""
    ports = {"fromPort": first, "toPort": last}
    return {"ruleNo": 100, "protocol": "tcp", "action": "allow", "cidrBlock": "0.0.0.0/0", **ports}


@pytest.mark.parametrize(("last", "answered"), [(65535, True), (40000, False)])
def test_a_network_acl_is_stateless(last: int, graph: Graph, *, answered: bool) -> None:
    """An answer needs a rule for the port of the client."""
    subnet = next(resources(graph, "aws:ec2/subnet:Subnet", "lab-us-east-1a-nodes"))["id"]
    graph.append(acl(ins=[entry(22, 22)], outs=[entry(1024, last)], subnet=subnet))

    walk = trip_in(graph, "us-west-2a", "us-east-1a")

    assert walk.out.delivered
    assert walk.answered is answered


def _open_ssh(graph: Graph) -> None:
    """Open SSH on the nodes of every region to the internet."""
    for group in list(resources(graph, "aws:ec2/securityGroup:SecurityGroup", "lab-nodes")):
        values = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "0.0.0.0/0"}
        values |= {"securityGroupId": group["id"]}
        graph.append({"urn": group["id"], "type": INGRESS, "name": "opened", "id": "sgr-1", "inputs": values})


def _add_public_address(graph: Graph) -> None:
    """Give instances public addresses on launch."""
    for template in resources(graph, "aws:ec2/launchTemplate:LaunchTemplate", "lab-box-.*"):
        groups = template["inputs"]["networkInterfaces"][0]["securityGroups"]
        interfaces = [{"associatePublicIpAddress": "true", "securityGroups": groups}]
        changed(template["type"], template["name"], networkInterfaces=interfaces)(graph)


def _route_to_internet(graph: Graph) -> None:
    """Route nodes to the internet gateway instead of the NAT gateway."""
    gateway = next(resources(graph, "aws:ec2/internetGateway:InternetGateway", ".*"))["id"]
    changed(ROUTE, "lab-.*-nodes-internet", natGatewayId=None, gatewayId=gateway)(graph)


def _open_ssh_to_list(graph: Graph) -> None:
    """Open SSH on the nodes of every region to a prefix list with separate entries."""
    values = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "prefixListId": "pl-1"}
    for group in list(resources(graph, "aws:ec2/securityGroup:SecurityGroup", "lab-nodes")):
        rule = {"urn": group["id"], "type": INGRESS, "name": "listed", "id": "sgr-2"}
        graph.append(rule | {"inputs": values | {"securityGroupId": group["id"]}})
    graph.append({"urn": "list", "type": "aws:ec2/managedPrefixList:ManagedPrefixList", "name": "all", "id": "pl-1"})
    for block in ("0.0.0.0/0", "::/0"):
        entry = {"urn": block, "type": "aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry", "name": block}
        graph.append(entry | {"inputs": {"prefixListId": "pl-1", "cidr": block}})


CONDITIONS: dict[str, Defect] = {"a rule": _open_ssh, "an address": _add_public_address, "a route": _route_to_internet}


def test_an_open_rule_an_address_and_a_route_expose_a_node(graph: Graph) -> None:
    """With all three, the walk reaches the node from the internet."""
    for add in CONDITIONS.values():
        add(graph)

    assert trip_in(graph, "internet", "us-west-2a").answered


def test_a_rule_can_be_open_to_a_prefix_list(graph: Graph) -> None:
    """Entries of a prefix list may be separate resources; IPv6 entries do not matter for IPv4."""
    for add in (_open_ssh_to_list, _add_public_address, _route_to_internet):
        add(graph)

    assert trip_in(graph, "internet", "us-west-2a").answered


@pytest.mark.parametrize("missing", CONDITIONS)
def test_two_of_the_three_do_not_expose_a_node(missing: str, graph: Graph) -> None:
    """If the rule, the address or the route is missing, the node is not reachable."""
    for name, add in CONDITIONS.items():
        if name != missing:
            add(graph)

    assert not trip_in(graph, "internet", "us-west-2a").out.delivered


@pytest.mark.parametrize("flow", [Flow("udp", 1194), Flow("tcp", 443)], ids=str)
def test_the_laptop_gateway_has_two_public_ports(flow: Flow, graph: Graph) -> None:
    """Its VPN ports are reachable from the internet, and no other."""
    fabric = read_fabric(graph)
    public = next(interface.public for interface in fabric.interfaces.values() if interface.public is not None)
    source = int(find_endpoint(plan_named(FLEET), "internet").address)

    assert trip(fabric, Packet(source, public, flow.protocol, flow.port)).out.delivered
    assert not trip(fabric, Packet(source, public, "tcp", 22)).out.delivered
