"""`bedplate reach` through VPN connections, and through tunnels between gateways that no graph contains."""

import json
from collections.abc import Callable
from copy import deepcopy
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.graph.reach import Packet, Trace, Trip, read_fabric, trip, walk
from bedplate.plan import Record, plan_fleet
from bedplate.plan.reachability import EndpointKind, endpoints, is_routed
from tests.testlab.fleets.sketch import LANS, ZONES, laptops, sketch
from tests.testlab.fleets.variants import CONNECTED_SITES_TEXT, JOINS


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """Return the file of an empty graph."""
    file = tmp_path / "graph.json"
    file.write_text(json.dumps([]), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("joins", "status"), [(JOINS, 0), ("", 3)])
def test_sites_reach_each_other_by_their_own_tunnel(
    joins: str, status: int, empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In both directions and without AWS; sites without a tunnel do not."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(CONNECTED_SITES_TEXT.replace(JOINS, joins), encoding="utf-8")

    arguments = ["reach", "attic", "cellar"]
    assert run([*arguments, str(fleet), "--graph", empty]) == status

    output = capsys.readouterr().out
    assert ("attic to cellar" in output) is (status == 0)
    assert ("by the tunnel between the two gateways" in output) is (status == 0)


SITES = {"cellar": ("192.168.40.0/22", "10.127.0.0/22"), "attic": ("192.168.60.0/24",)}


def resource(token: str, ident: str, *after: str, **inputs: object) -> dict[str, Any]:
    """Return a resource of a graph; its URN is its id."""
    return {"urn": ident, "type": f"aws:ec2/{token}", "id": ident, "inputs": inputs, "dependencies": list(after)}


def network() -> list[dict[str, Any]]:
    """Return a VPC whose gateway has VPN connections to two sites, with routes to each."""
    resources = [
        resource("vpc:Vpc", "vpc-1", cidrBlock="10.64.0.0/16", mainRouteTableId="rtb-1"),
        resource("routeTable:RouteTable", "rtb-1", vpcId="vpc-1"),
        resource("subnet:Subnet", "subnet-1", vpcId="vpc-1", cidrBlock="10.64.0.0/24"),
        resource("vpnGateway:VpnGateway", "vgw-1", vpcId="vpc-1"),
    ]
    for site, blocks in SITES.items():
        resources.append(resource("vpnConnection:VpnConnection", site, vpnGatewayId="vgw-1"))
        resources += [
            resource(
                "route:Route",
                f"{site}-{block}",
                site,
                routeTableId="rtb-1",
                destinationCidrBlock=block,
                gatewayId="vgw-1",
            )
            for block in blocks
        ]
    return resources


def walked(graph: list[dict[str, Any]], source: str, target: str) -> Trace:
    """Return the trace of a packet between two addresses."""
    return walk(read_fabric(graph), Packet(int(IPv4Address(source)), int(IPv4Address(target)), "tcp", 22))


def passed(trace: Trace) -> list[str]:
    """Return the names of the hops."""
    return [hop.at for hop in trace.hops]


def test_a_packet_takes_the_connection_of_its_own_site() -> None:
    """A route belongs to the connection that it depends on, not to another of the same gateway."""
    assert passed(walked(network(), "192.168.60.9", "10.64.0.9")) == ["attic"]


def test_a_private_gateway_leads_from_site_to_site() -> None:
    """It announces the routes of each site to the others (VPN CloudHub)."""
    trace = walked(network(), "192.168.60.9", "192.168.40.9")

    assert trace.delivered
    assert passed(trace) == ["attic", "cellar"]


def test_sites_of_written_routes_are_not_announced() -> None:
    """Without BGP the gateway does not connect sites."""
    graph = deepcopy(network())
    for node in graph:
        if node["type"].endswith("VpnConnection"):
            node["inputs"]["staticRoutesOnly"] = True
            route = "vpnConnectionRoute:VpnConnectionRoute"
            block = SITES[node["id"]][0]
            graph.append(resource(route, f"to-{block}", vpnConnectionId=node["id"], destinationCidrBlock=block))

    trace = walked(graph, "192.168.60.9", "192.168.40.9")

    assert (trace.delivered, trace.end) == (False, "no VPN connection of the source's site leads to the target")


def test_what_stays_in_a_site_passes_nothing() -> None:
    """Laptops of a site reach its machines without a tunnel."""
    trace = walked(network(), "10.127.0.9", "192.168.40.9")

    assert (trace.delivered, passed(trace)) == (True, [])


def test_sites_are_to_reach_each_other_however_regions_do() -> None:
    """So do the laptops of sites; laptops of a region do not."""
    pools = laptops({"region": "us-west-2"}, {"site": "cellar"})
    for interconnect in ("peering", "none"):
        fleet = sketch(
            ZONES, sites={**LANS, "attic": "192.168.60.0/24"}, vpn=pools, network={"interconnect": interconnect}
        )
        plan = plan_fleet(fleet, Record({}), load_catalog())
        attic = next(spot for spot in endpoints(plan) if spot.name == "attic")

        assert {
            spot.name: is_routed(plan, attic, spot)
            for spot in endpoints(plan)
            if spot.kind in (EndpointKind.LAN, EndpointKind.LAPTOPS)
        } == {"cellar": True, "attic": True, "laptops.us-west-2": False, "laptops.cellar": True}


Graph = list[dict[str, Any]]
EAST, WEST = "10.65", "10.64"
NODE = {EAST: "10.65.32.9", WEST: "10.64.32.9"}
POOL = {EAST: "10.121.4.0/22", WEST: "10.121.0.0/22"}
LAPTOP = "10.121.0.9"
PUBLIC = {EAST: "203.0.113.2", WEST: "198.51.100.2"}


def reach_tunnel_resource(token: str, ident: str, *after: str, **inputs: object) -> dict[str, Any]:
    """Return a resource of a graph; its URN and its name are its id."""
    return {"urn": ident, "name": ident, "type": f"aws:{token}", "id": ident, "inputs": inputs, "dependencies": after}


def rule(side: str, group: str, block: str, **flow: object) -> dict[str, Any]:
    """Return a security group rule."""
    values = {"securityGroupId": group, "cidrIpv4": block, "ipProtocol": "-1", **flow}
    return reach_tunnel_resource(
        "vpc/securityGroupIngressRule:SecurityGroupIngressRule", f"{group}-from-{block}", **values
    )


def region(here: str, there: str) -> Graph:
    """Return a VPC with a public subnet for its gateway, and one for nodes."""
    table, card, ike = f"rtb-{here}", f"eni-{here}", f"gw-{here}-from-{PUBLIC[there]}/32"
    lets_out = {"securityGroupId": f"gw-{here}", "cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"}
    lead = {"routeTableId": table, "networkInterfaceId": card}
    return [
        reach_tunnel_resource("ec2/vpc:Vpc", f"vpc-{here}", cidrBlock=f"{here}.0.0/16", mainRouteTableId=table),
        reach_tunnel_resource("ec2/routeTable:RouteTable", table, vpcId=f"vpc-{here}"),
        reach_tunnel_resource("ec2/subnet:Subnet", f"edge-{here}", vpcId=f"vpc-{here}", cidrBlock=f"{here}.0.0/24"),
        reach_tunnel_resource("ec2/subnet:Subnet", f"nodes-{here}", vpcId=f"vpc-{here}", cidrBlock=f"{here}.32.0/19"),
        reach_tunnel_resource("ec2/securityGroup:SecurityGroup", f"gw-{here}"),
        reach_tunnel_resource("ec2/securityGroup:SecurityGroup", f"node-{here}"),
        reach_tunnel_resource(
            "ec2/networkInterface:NetworkInterface",
            card,
            subnetId=f"edge-{here}",
            securityGroups=[f"gw-{here}"],
            sourceDestCheck=False,
            privateIp=f"{here}.0.9",
        ),
        reach_tunnel_resource(
            "ec2/networkInterface:NetworkInterface",
            f"node-eni-{here}",
            subnetId=f"nodes-{here}",
            securityGroups=[f"node-{here}"],
            privateIp=NODE[here],
        ),
        reach_tunnel_resource("ec2/eip:Eip", f"eip-{here}", networkInterface=card, publicIp=PUBLIC[here]),
        reach_tunnel_resource("vpc/securityGroupEgressRule:SecurityGroupEgressRule", f"gw-{here}-out", **lets_out),
        reach_tunnel_resource(
            "vpc/securityGroupEgressRule:SecurityGroupEgressRule",
            f"node-{here}-out",
            **(lets_out | {"securityGroupId": f"node-{here}"}),
        ),
        rule(here, f"gw-{here}", f"{PUBLIC[there]}/32", ipProtocol="udp", fromPort=4500, toPort=4500),
        rule(here, f"gw-{here}", f"{here}.32.0/19"),
        rule(here, f"node-{here}", f"{there}.32.0/19"),
        rule(here, f"node-{here}", POOL[WEST]),
        reach_tunnel_resource("ec2/route:Route", f"{table}-own-pool", destinationCidrBlock=POOL[here], **lead),
        reach_tunnel_resource("ec2/route:Route", f"{table}-far", ike, destinationCidrBlock=f"{there}.0.0/16", **lead),
        reach_tunnel_resource("ec2/route:Route", f"{table}-far-pool", ike, destinationCidrBlock=POOL[there], **lead),
    ]


NETWORK = [*region(WEST, EAST), *region(EAST, WEST)]


def between(graph: Graph, source: str, target: str) -> Trip:
    """Return the trip between two addresses, for SSH."""
    return trip(read_fabric(graph), Packet(int(IPv4Address(source)), int(IPv4Address(target))))


@pytest.mark.parametrize("source", [NODE[WEST], LAPTOP])
def test_a_packet_and_its_answer_pass_the_tunnel(source: str) -> None:
    """From gateway to gateway, once in each direction, and into the other VPC."""
    round_trip = between(NETWORK, source, NODE[EAST])

    assert round_trip.answered
    assert round_trip.back
    for way in (round_trip.out, round_trip.back):
        assert sum(hop.at.startswith("tunnel of ") for hop in way.hops) == 1
    assert round_trip.out.end == f"node-eni-{EAST} in nodes-{EAST}"


def test_a_laptop_is_behind_its_own_gateway() -> None:
    """The packet starts at the laptop's gateway, not at the other one."""
    first, *_ = between(NETWORK, LAPTOP, NODE[WEST]).out.hops

    assert first.at == f"edge-{WEST}"


def without(ident: str) -> Callable[[Graph], None]:
    """Return the damage of removing a resource."""

    def take(graph: Graph) -> None:
        graph[:] = [node for node in graph if node["id"] != ident]
        assert len(graph) == len(NETWORK) - 1

    return take


def altered(ident: str, **values: object) -> Callable[[Graph], None]:
    """Return the damage of changing a resource."""

    def alter(graph: Graph) -> None:
        (node,) = (node for node in graph if node["id"] == ident)
        node["inputs"] |= values

    return alter


def _round(graph: Graph) -> None:
    """Route the packet back into the tunnel."""
    for here in (WEST, EAST):
        for node in graph:
            if node["id"] == f"rtb-{here}-far":
                node["inputs"]["destinationCidrBlock"] = "10.99.0.0/16"


LOSSES = {
    "the near security group": (without(f"gw-{WEST}-from-{PUBLIC[EAST]}/32"), "eni-10.64 has no tunnel to another VPC"),
    "the far security group": (without(f"gw-{EAST}-from-{PUBLIC[WEST]}/32"), "a security group denies IKE"),
    "the far address": (without(f"eip-{EAST}"), "a security group denies IKE"),
    "the near address": (without(f"eip-{WEST}"), "a security group denies IKE"),
    "the route": (without(f"rtb-{WEST}-far"), "has no route to the target"),
    "the far forwarding": (
        altered(f"eni-{EAST}", sourceDestCheck=True),
        f"eni-{EAST} does not forward packets: its source/destination check is on",
    ),
    "the security group of the gateway": (
        without(f"gw-{WEST}-from-{WEST}.32.0/19"),
        f"no security group of eni-{WEST}",
    ),
    "the security group of the node": (
        without(f"node-{EAST}-from-{WEST}.32.0/19"),
        f"no security group of node-eni-{EAST}",
    ),
}


@pytest.mark.parametrize(("damage", "says"), LOSSES.values(), ids=LOSSES)
def test_a_missing_piece_ends_the_packet(damage: Callable[[Graph], None], says: str) -> None:
    """The trace ends at the missing resource and names it."""
    graph = deepcopy(NETWORK)

    damage(graph)

    trace = between(graph, NODE[WEST], NODE[EAST]).out
    assert not trace.delivered
    assert says in trace.end


def test_a_missing_route_back_loses_the_answer() -> None:
    """The packet arrives, and its reply does not."""
    graph = deepcopy(NETWORK)

    without(f"rtb-{EAST}-far")(graph)

    round_trip = between(graph, NODE[WEST], NODE[EAST])
    assert (round_trip.out.delivered, round_trip.answered) == (True, False)


def test_gateways_that_lead_to_each_other_are_noticed() -> None:
    """A routing loop ends the trace."""
    graph = deepcopy(NETWORK)

    _round(graph)

    assert between(graph, NODE[WEST], "10.99.0.1").out.end == "routing loop between gateways"
