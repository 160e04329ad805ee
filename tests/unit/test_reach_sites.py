"""Sites on one virtual private gateway: whose connection a packet takes, and what AWS carries between them."""

from copy import deepcopy
from ipaddress import IPv4Address
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.intent import Kind, carries, spots
from bedplate.reach import Packet, Trace, read_fabric, walk
from tests.support.sketch import LANS, ZONES, laptops, sketch

SITES = {"cellar": ("192.168.40.0/22", "10.127.0.0/22"), "attic": ("192.168.60.0/24",)}


def resource(token: str, ident: str, *after: str, **inputs: object) -> dict[str, Any]:
    """Return a resource as a graph lists it; its URN is its id."""
    return {"urn": ident, "type": f"aws:ec2/{token}", "id": ident, "inputs": inputs, "dependencies": list(after)}


def network() -> list[dict[str, Any]]:
    """Return a VPC with a gateway to which two sites are connected, and the routes to what lies behind each."""
    found = [
        resource("vpc:Vpc", "vpc-1", cidrBlock="10.64.0.0/16", mainRouteTableId="rtb-1"),
        resource("routeTable:RouteTable", "rtb-1", vpcId="vpc-1"),
        resource("subnet:Subnet", "subnet-1", vpcId="vpc-1", cidrBlock="10.64.0.0/24"),
        resource("vpnGateway:VpnGateway", "vgw-1", vpcId="vpc-1"),
    ]
    for site, blocks in SITES.items():
        found.append(resource("vpnConnection:VpnConnection", site, vpnGatewayId="vgw-1"))
        found += [
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
    return found


def walked(graph: list[dict[str, Any]], source: str, target: str) -> Trace:
    """Return the way of a packet between two addresses."""
    return walk(read_fabric(graph), Packet(int(IPv4Address(source)), int(IPv4Address(target)), "tcp", 22))


def passed(trace: Trace) -> list[str]:
    """Return what a packet passed."""
    return [hop.at for hop in trace.hops]


def test_a_packet_takes_the_connection_of_its_own_site() -> None:
    """Its routes wait for that connection; another site's, on the same gateway, is not its own."""
    assert passed(walked(network(), "192.168.60.9", "10.64.0.9")) == ["attic"]


def test_a_private_gateway_leads_from_site_to_site() -> None:
    """It announces each site to the others (VPN CloudHub), so that they reach each other unasked."""
    trace = walked(network(), "192.168.60.9", "192.168.40.9")

    assert trace.delivered
    assert passed(trace) == ["attic", "cellar"]


def test_sites_of_written_routes_are_not_announced() -> None:
    """Without BGP nobody tells one site of the other; the site is known all the same."""
    graph = deepcopy(network())
    for node in graph:
        if node["type"].endswith("VpnConnection"):
            node["inputs"]["staticRoutesOnly"] = True
            route = "vpnConnectionRoute:VpnConnectionRoute"
            block = SITES[node["id"]][0]
            graph.append(resource(route, f"to-{block}", vpnConnectionId=node["id"], destinationCidrBlock=block))

    trace = walked(graph, "192.168.60.9", "192.168.40.9")

    assert (trace.delivered, trace.end) == (False, "no VPN connection of its site leads there")


def test_what_stays_in_a_site_passes_nothing() -> None:
    """A site's laptops reach its machines without a tunnel."""
    trace = walked(network(), "10.127.0.9", "192.168.40.9")

    assert (trace.delivered, passed(trace)) == (True, [])


def test_sites_are_to_reach_each_other_however_regions_do() -> None:
    """And the laptops of a site with them; a region's laptops are behind a VPC, to which nothing leads on."""
    pools = laptops({"region": "us-west-2"}, {"site": "cellar"})
    for interconnect in ("peering", "none"):
        fleet = sketch(
            ZONES, sites={**LANS, "attic": "192.168.60.0/24"}, vpn=pools, network={"interconnect": interconnect}
        )
        plan = plan_fleet(fleet, Record({}), load_catalog())
        attic = next(spot for spot in spots(plan) if spot.name == "attic")

        assert {
            spot.name: carries(plan, attic, spot) for spot in spots(plan) if spot.kind in (Kind.LAN, Kind.LAPTOPS)
        } == {"cellar": True, "attic": True, "laptops.us-west-2": False, "laptops.cellar": True}
