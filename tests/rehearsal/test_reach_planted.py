"""What a walk finds in a network that something was done to: each defect beside the network as it should be."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from bedplate.graph.reach import Packet, Trip, read_fabric, trip
from bedplate.plan.reachability import Flow, spot_of
from tests.testlab.rehearsal.live import graph_of, plan_named

FLEET = "two sites"
Graph = list[dict[str, Any]]
Damage = Callable[[Graph], None]

INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
ROUTE, HUB_ROUTE = "aws:ec2/route:Route", "aws:ec2transitgateway/route:Route"


@pytest.fixture
def graph() -> Graph:
    """Give a copy of a sound network of two regions, two sites and laptops."""
    return deepcopy(list(graph_of(FLEET)))


def trip_in(graph: Graph, source: str, target: str, flow: Flow = Flow()) -> Trip:  # noqa: B008  it is frozen
    """Return the trip between two places of the fleet, by name."""
    one, two = (spot_of(plan_named(FLEET), name) for name in (source, target))
    return trip(read_fabric(graph), Packet(int(one.address), int(two.address), flow.protocol, flow.port))


def made(graph: Graph, token: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the resources of a type whose name matches a pattern."""
    yield from (node for node in graph if node["type"] == token and re.fullmatch(name, node["name"]))


def without(token: str, name: str) -> Damage:
    """Return the damage of taking resources out."""

    def take(graph: Graph) -> None:
        gone = [node["urn"] for node in made(graph, token, name)]
        assert gone
        graph[:] = [node for node in graph if node["urn"] not in gone]

    return take


def altered(token: str, name: str, **values: object) -> Damage:
    """Return the damage of giving a resource other values."""

    def alter(graph: Graph) -> None:
        found = list(made(graph, token, name))
        assert found
        for node in found:
            node["inputs"] |= values
            node["outputs"] |= values

    return alter


@dataclass(frozen=True)
class Loss:
    """A damage, who no longer reaches whom by it, what is said, and whether it is the answer that is lost."""

    damage: Damage
    source: str
    target: str
    says: str
    answer: bool


LOSSES: dict[str, Loss] = {
    "a VPC's route": Loss(
        without(ROUTE, "lab-us-west-2a-nodes-to-us-east-1"),
        *("us-west-2a", "us-east-1a", "no route to the target|NAT gateway routes only to the internet", False),
    ),
    "the route of the answer": Loss(
        without(ROUTE, "lab-us-east-1a-nodes-to-us-west-2"),
        *("us-west-2a", "us-east-1a", "NAT gateway routes only to the internet", True),
    ),
    "a transit gateway's route": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-us-west-2"),
        *("us-west-2a", "us-east-1a", "table lab .us-east-1. has no route to the target", True),
    ),
    "a route into the VPC": Loss(
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
    "a rule for far nodes": Loss(
        without(INGRESS, "lab-nodes-all-from-nodes-us-west-2-.*"),
        *("us-west-2a", "us-east-1a", "no security group of .* allows it inbound", False),
    ),
    "the gateway's forwarding": Loss(
        altered("aws:ec2/networkInterface:NetworkInterface", "lab-laptops", sourceDestCheck=True),
        *("laptops.us-west-2", "us-east-1a", "source/destination check is on", False),
    ),
    "a pool's route home": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-laptops-us-west-2"),
        *("laptops.us-west-2", "us-east-1a", "table lab .us-east-1. has no route to the target", True),
    ),
    "a site's route": Loss(
        without(HUB_ROUTE, "lab-us-east-1-to-site-cellar"),
        *("gate.cellar", "us-east-1a", "has no route to the target|not accepted|no route", True),
    ),
    "a black hole": Loss(
        altered(HUB_ROUTE, "lab-us-east-1-to-us-west-2", blackhole=True),
        *("us-west-2a", "us-east-1a", "has no route to the target", True),
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_missing_piece_is_named_where_the_packet_ends(loss: Loss, graph: Graph) -> None:
    """What was reached is not reached any more; where the way is one way only, it is the answer that ends."""
    assert trip_in(graph, loss.source, loss.target).answered

    loss.damage(graph)

    found = trip_in(graph, loss.source, loss.target)
    ended = found.back if loss.answer else found.out
    assert found.out.delivered is loss.answer
    assert ended is not None
    assert re.search(loss.says, ended.end)


def acl(*, ins: list[dict[str, object]], outs: list[dict[str, object]], subnet: str) -> dict[str, Any]:
    """Return a network ACL of one subnet."""
    values = {"subnetIds": [subnet], "ingress": ins, "egress": outs}
    return {"urn": "acl", "type": "aws:ec2/networkAcl:NetworkAcl", "name": "acl", "id": "acl-1", "inputs": values}


def entry(first: int, last: int) -> dict[str, object]:
    """Return an ACL's entry that lets TCP ports pass, from and to anywhere."""
    ports = {"fromPort": first, "toPort": last}
    return {"ruleNo": 100, "protocol": "tcp", "action": "allow", "cidrBlock": "0.0.0.0/0", **ports}


@pytest.mark.parametrize(("last", "answered"), [(65535, True), (40000, False)])
def test_a_network_acl_forgets_what_it_let_in(last: int, graph: Graph, *, answered: bool) -> None:
    """An answer leaves only by a rule for the port that the client asks from."""
    subnet = next(made(graph, "aws:ec2/subnet:Subnet", "lab-us-east-1a-nodes"))["id"]
    graph.append(acl(ins=[entry(22, 22)], outs=[entry(1024, last)], subnet=subnet))

    found = trip_in(graph, "us-west-2a", "us-east-1a")

    assert found.out.delivered
    assert found.answered is answered


def _open_door(graph: Graph) -> None:
    """Open SSH on every region's nodes to the world."""
    for group in list(made(graph, "aws:ec2/securityGroup:SecurityGroup", "lab-nodes")):
        values = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "0.0.0.0/0"}
        values |= {"securityGroupId": group["id"]}
        graph.append({"urn": group["id"], "type": INGRESS, "name": "opened", "id": "sgr-1", "inputs": values})


def _give_address(graph: Graph) -> None:
    """Give machines public addresses on launch."""
    cards = [{"associatePublicIpAddress": "true", "securityGroups": None}]
    for template in made(graph, "aws:ec2/launchTemplate:LaunchTemplate", "lab-box-.*"):
        groups = template["inputs"]["networkInterfaces"][0]["securityGroups"]
        altered(template["type"], template["name"], networkInterfaces=[{**cards[0], "securityGroups": groups}])(graph)


def _give_way(graph: Graph) -> None:
    """Lead nodes to the internet gateway instead of the NAT gateway."""
    gateway = next(made(graph, "aws:ec2/internetGateway:InternetGateway", ".*"))["id"]
    altered(ROUTE, "lab-.*-nodes-internet", natGatewayId=None, gatewayId=gateway)(graph)


def _list_address(graph: Graph) -> None:
    """Open SSH on every region's nodes to a list, whose entries are resources of their own."""
    values = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "prefixListId": "pl-1"}
    for group in list(made(graph, "aws:ec2/securityGroup:SecurityGroup", "lab-nodes")):
        rule = {"urn": group["id"], "type": INGRESS, "name": "listed", "id": "sgr-2"}
        graph.append(rule | {"inputs": values | {"securityGroupId": group["id"]}})
    graph.append({"urn": "list", "type": "aws:ec2/managedPrefixList:ManagedPrefixList", "name": "all", "id": "pl-1"})
    for block in ("0.0.0.0/0", "::/0"):
        entry = {"urn": block, "type": "aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry", "name": block}
        graph.append(entry | {"inputs": {"prefixListId": "pl-1", "cidr": block}})


PIECES: dict[str, Damage] = {"a door": _open_door, "an address": _give_address, "a way": _give_way}


def test_a_stranger_gets_in_by_a_door_an_address_and_a_way(graph: Graph) -> None:
    """Where a machine has all three it is exposed, and the walk says so."""
    for piece in PIECES.values():
        piece(graph)

    assert trip_in(graph, "internet", "us-west-2a").answered


def test_a_door_may_be_open_to_a_list(graph: Graph) -> None:
    """Its entries may stand apart from it; those of IPv6 are no matter of a walk of IPv4."""
    for piece in (_list_address, _give_address, _give_way):
        piece(graph)

    assert trip_in(graph, "internet", "us-west-2a").answered


@pytest.mark.parametrize("missing", PIECES)
def test_a_stranger_stays_out_while_one_of_the_three_is_missing(missing: str, graph: Graph) -> None:
    """Two of them expose nothing."""
    for name, piece in PIECES.items():
        if name != missing:
            piece(graph)

    assert not trip_in(graph, "internet", "us-west-2a").out.delivered


@pytest.mark.parametrize("flow", [Flow("udp", 1194), Flow("tcp", 443)], ids=str)
def test_the_laptop_gateway_is_open_to_the_world_where_it_should_be(flow: Flow, graph: Graph) -> None:
    """Its two doors are, and nothing else of it is."""
    fabric = read_fabric(graph)
    public = next(stand.public for stand in fabric.stands.values() if stand.public is not None)
    stranger = int(spot_of(plan_named(FLEET), "internet").address)

    assert trip(fabric, Packet(stranger, public, flow.protocol, flow.port)).out.delivered
    assert not trip(fabric, Packet(stranger, public, "tcp", 22)).out.delivered
