"""Tunnels of gateways' own, walked: who means to have one is told by routes that wait for doors of IKE."""

from collections.abc import Callable
from copy import deepcopy
from ipaddress import IPv4Address
from typing import Any

import pytest

from bedplate.reach import Packet, Trip, read_fabric, trip

Graph = list[dict[str, Any]]
EAST, WEST = "10.65", "10.64"
NODE = {EAST: "10.65.32.9", WEST: "10.64.32.9"}
POOL = {EAST: "10.121.4.0/22", WEST: "10.121.0.0/22"}
LAPTOP = "10.121.0.9"
PUBLIC = {EAST: "203.0.113.2", WEST: "198.51.100.2"}


def resource(token: str, ident: str, *after: str, **inputs: object) -> dict[str, Any]:
    """Return a resource as a graph lists it; its URN and its name are its id."""
    return {"urn": ident, "name": ident, "type": f"aws:{token}", "id": ident, "inputs": inputs, "dependencies": after}


def rule(side: str, group: str, block: str, **flow: object) -> dict[str, Any]:
    """Return a door of a security group."""
    values = {"securityGroupId": group, "cidrIpv4": block, "ipProtocol": "-1", **flow}
    return resource("vpc/securityGroupIngressRule:SecurityGroupIngressRule", f"{group}-from-{block}", **values)


def region(here: str, there: str) -> Graph:
    """Return a VPC with a subnet at its edge, where its gateway stands, and one of nodes."""
    table, card, ike = f"rtb-{here}", f"eni-{here}", f"gw-{here}-from-{PUBLIC[there]}/32"
    lets_out = {"securityGroupId": f"gw-{here}", "cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"}
    lead = {"routeTableId": table, "networkInterfaceId": card}
    return [
        resource("ec2/vpc:Vpc", f"vpc-{here}", cidrBlock=f"{here}.0.0/16", mainRouteTableId=table),
        resource("ec2/routeTable:RouteTable", table, vpcId=f"vpc-{here}"),
        resource("ec2/subnet:Subnet", f"edge-{here}", vpcId=f"vpc-{here}", cidrBlock=f"{here}.0.0/24"),
        resource("ec2/subnet:Subnet", f"nodes-{here}", vpcId=f"vpc-{here}", cidrBlock=f"{here}.32.0/19"),
        resource("ec2/securityGroup:SecurityGroup", f"gw-{here}"),
        resource("ec2/securityGroup:SecurityGroup", f"node-{here}"),
        resource(
            "ec2/networkInterface:NetworkInterface",
            card,
            subnetId=f"edge-{here}",
            securityGroups=[f"gw-{here}"],
            sourceDestCheck=False,
            privateIp=f"{here}.0.9",
        ),
        resource(
            "ec2/networkInterface:NetworkInterface",
            f"node-eni-{here}",
            subnetId=f"nodes-{here}",
            securityGroups=[f"node-{here}"],
            privateIp=NODE[here],
        ),
        resource("ec2/eip:Eip", f"eip-{here}", networkInterface=card, publicIp=PUBLIC[here]),
        resource("vpc/securityGroupEgressRule:SecurityGroupEgressRule", f"gw-{here}-out", **lets_out),
        resource(
            "vpc/securityGroupEgressRule:SecurityGroupEgressRule",
            f"node-{here}-out",
            **(lets_out | {"securityGroupId": f"node-{here}"}),
        ),
        rule(here, f"gw-{here}", f"{PUBLIC[there]}/32", ipProtocol="udp", fromPort=4500, toPort=4500),
        rule(here, f"gw-{here}", f"{here}.32.0/19"),
        rule(here, f"node-{here}", f"{there}.32.0/19"),
        rule(here, f"node-{here}", POOL[WEST]),
        resource("ec2/route:Route", f"{table}-own-pool", destinationCidrBlock=POOL[here], **lead),
        resource("ec2/route:Route", f"{table}-far", ike, destinationCidrBlock=f"{there}.0.0/16", **lead),
        resource("ec2/route:Route", f"{table}-far-pool", ike, destinationCidrBlock=POOL[there], **lead),
    ]


NETWORK = [*region(WEST, EAST), *region(EAST, WEST)]


def between(graph: Graph, source: str, target: str) -> Trip:
    """Return the trip between two addresses, for SSH."""
    return trip(read_fabric(graph), Packet(int(IPv4Address(source)), int(IPv4Address(target))))


@pytest.mark.parametrize("source", [NODE[WEST], LAPTOP])
def test_a_packet_and_its_answer_pass_the_tunnel(source: str) -> None:
    """From gateway to gateway, once each way, and out of the second into its VPC."""
    found = between(NETWORK, source, NODE[EAST])

    assert found.answered
    assert found.back
    for way in (found.out, found.back):
        assert sum(hop.at.startswith("tunnel of ") for hop in way.hops) == 1
    assert found.out.end == f"node-eni-{EAST} in nodes-{EAST}"


def test_a_laptop_is_behind_its_own_gateway() -> None:
    """The other gateway leads on to it and is not where it sets out from."""
    first, *_ = between(NETWORK, LAPTOP, NODE[WEST]).out.hops

    assert first.at == f"edge-{WEST}"


def without(ident: str) -> Callable[[Graph], None]:
    """Return the damage of taking a resource out."""

    def take(graph: Graph) -> None:
        graph[:] = [each for each in graph if each["id"] != ident]
        assert len(graph) == len(NETWORK) - 1

    return take


def altered(ident: str, **values: object) -> Callable[[Graph], None]:
    """Return the damage of giving a resource other values."""

    def alter(graph: Graph) -> None:
        (found,) = (each for each in graph if each["id"] == ident)
        found["inputs"] |= values

    return alter


def _round(graph: Graph) -> None:
    """Lead what has crossed back into the tunnel."""
    for here in (WEST, EAST):
        for each in graph:
            if each["id"] == f"rtb-{here}-far":
                each["inputs"]["destinationCidrBlock"] = "10.99.0.0/16"


LOSSES = {
    "the near door": (without(f"gw-{WEST}-from-{PUBLIC[EAST]}/32"), "nothing leads on from eni-10.64 to another VPC"),
    "the far door": (without(f"gw-{EAST}-from-{PUBLIC[WEST]}/32"), "the two ends do not let each other in"),
    "the far address": (without(f"eip-{EAST}"), "the two ends do not let each other in"),
    "the near address": (without(f"eip-{WEST}"), "the two ends do not let each other in"),
    "the route": (without(f"rtb-{WEST}-far"), "has no route to it"),
    "the far forwarding": (
        altered(f"eni-{EAST}", sourceDestCheck=True),
        f"eni-{EAST} does not forward: its source/destination check is on",
    ),
    "the door of the gateway": (without(f"gw-{WEST}-from-{WEST}.32.0/19"), f"no security group of eni-{WEST}"),
    "the door of the node": (without(f"node-{EAST}-from-{WEST}.32.0/19"), f"no security group of node-eni-{EAST}"),
}


@pytest.mark.parametrize(("damage", "says"), LOSSES.values(), ids=LOSSES)
def test_a_missing_piece_ends_the_packet(damage: Callable[[Graph], None], says: str) -> None:
    """Where it is missing, and by its name."""
    graph = deepcopy(NETWORK)

    damage(graph)

    found = between(graph, NODE[WEST], NODE[EAST]).out
    assert not found.delivered
    assert says in found.end


def test_a_missing_route_back_loses_the_answer() -> None:
    """The packet arrives, and its answer goes nowhere."""
    graph = deepcopy(NETWORK)

    without(f"rtb-{EAST}-far")(graph)

    found = between(graph, NODE[WEST], NODE[EAST])
    assert (found.out.delivered, found.answered) == (True, False)


def test_gateways_that_lead_to_each_other_are_noticed() -> None:
    """A block that each believes behind the other goes round, and the walk ends."""
    graph = deepcopy(NETWORK)

    _round(graph)

    assert between(graph, NODE[WEST], "10.99.0.1").out.end == "it goes round between gateways"
