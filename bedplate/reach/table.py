"""Route tables, of VPCs and of transit gateways: the longest prefix wins."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from bedplate.reach.packet import Prefix, prefix
from bedplate.reach.resource import Resource, Resources
from bedplate.reach.tunnel import far_ends


class Via(StrEnum):
    """What a route leads through."""

    LOCAL = "local"
    INTERNET = "internet gateway"
    NAT = "NAT gateway"
    TRANSIT = "transit gateway"
    PEERING = "VPC peering"
    INTERFACE = "network interface"
    VPN = "virtual private gateway"
    ATTACHMENT = "attachment"
    BLACKHOLE = "blackhole"


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a block of addresses: through what, and its id.

    `across` is the public address of the far end, where it leads to an interface that has a tunnel of its own there.
    """

    to: Prefix
    via: Via
    ident: str
    across: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table's routes, the longest prefixes first; a static route before a propagated one."""

    ident: str
    name: str
    routes: tuple[Route, ...]

    def route(self, address: int) -> Route | None:
        """Return the route that a packet to an address takes."""
        return next((route for route in self.routes if route.to.holds(address)), None)


def table(ident: str, name: str, routes: Iterable[Route]) -> Table:
    """Return a table of routes given in any order."""
    return Table(ident, name, tuple(sorted(routes, key=lambda route: -route.to.length)))


_TARGETS: Mapping[str, Via] = {
    "natGatewayId": Via.NAT,
    "networkInterfaceId": Via.INTERFACE,
    "transitGatewayId": Via.TRANSIT,
    "vpcPeeringConnectionId": Via.PEERING,
}
_GATEWAYS = {"igw-": Via.INTERNET, "vgw-": Via.VPN}


def vpc_tables(resources: Resources) -> dict[str, Table]:
    """Return the route tables of VPCs by id, each with the route to its own VPC."""
    lone = list(_lone_routes(resources))
    blocks = {vpc.id: vpc.text("cidrBlock") for vpc in resources.of("ec2/vpc:Vpc")}
    found = {}
    for each in resources.of("ec2/routeTable:RouteTable", "ec2/defaultRouteTable:DefaultRouteTable"):
        own = [route for table_id, route in lone if table_id == each.id]
        block = blocks.get(each.text("vpcId"), "")
        local = [Route(prefix(block), Via.LOCAL, each.text("vpcId"))] if block else []
        found[each.id] = table(each.id, each.label, [*local, *_listed(each), *own])
    return found


def _listed(each: Resource) -> Iterator[Route]:
    for values in each.blocks("routes"):
        if values.get("cidrBlock"):
            yield _route(str(values["cidrBlock"]), values)


def _lone_routes(resources: Resources) -> Iterator[tuple[str, Route]]:
    ends = far_ends(resources)
    for each in resources.of("ec2/route:Route"):
        if each.text("destinationCidrBlock"):
            route = _route(each.text("destinationCidrBlock"), each.values)
            waits = (ends[urn] for urn in each.after if urn in ends and route.via is Via.INTERFACE)
            yield each.text("routeTableId"), replace(route, across=next(waits, None))


def _route(block: str, values: Mapping[str, Any]) -> Route:
    for key, via in _TARGETS.items():
        if values.get(key):
            return Route(prefix(block), via, str(values[key]))
    gateway = str(values.get("gatewayId") or "")
    return Route(prefix(block), _GATEWAYS.get(gateway[:4], Via.BLACKHOLE), gateway)
