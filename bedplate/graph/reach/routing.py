"""Tunnels that gateways of the network's own make: no graph holds one, and a graph shows who means to have one.

A route to a gateway's interface that waits for a door of IKE leads on to whoever the door is for.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from bedplate.graph.reach.filters import Prefix, Resource, Resources, prefix

# Where an address is translated, as an elastic one is, IKE and ESP go to this port alone (RFC 3947, RFC 3948).
IKE = ("udp", 4500)
_ONE_ADDRESS = 32


def far_ends(resources: Resources) -> Mapping[str, int]:
    """Return the addresses for which doors of IKE are, each for one alone, by the URN of the door."""
    found = {}
    for each in resources.of("vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        if (each.text("ipProtocol"), each.values.get("fromPort")) == IKE and each.text("cidrIpv4"):
            block = prefix(each.text("cidrIpv4"))
            if block.length == _ONE_ADDRESS:
                found[each.urn] = block.first
    return found


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


class Joined(StrEnum):
    """What an attachment joins to a transit gateway."""

    VPC = "VPC"
    PEERING = "peering"
    VPN = "VPN connection"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment; `hubs` are the gateways that it joins: one, or both ends of a peering."""

    ident: str
    name: str
    joins: Joined
    hubs: tuple[str, ...]
    far: str = ""
    subnets: tuple[str, ...] = ()
    live: bool = True


@dataclass(frozen=True, slots=True)
class Hubs:
    """All transit gateways of a graph."""

    names: dict[str, str]
    attachments: dict[str, Attachment]
    tables: dict[str, Table]
    by_attachment: dict[tuple[str, str], str]
    """The table by which a gateway routes what comes from an attachment: by (gateway, attachment)."""

    def table_of(self, hub: str, attachment: str) -> Table | None:
        """Return the table that a gateway has associated with an attachment."""
        return self.tables.get(self.by_attachment.get((hub, attachment), ""))

    def of_vpc(self, hub: str, vpc: str) -> Attachment | None:
        """Return the attachment of a VPC to a gateway."""
        return next((each for each in self._of(hub) if each.joins is Joined.VPC and each.far == vpc), None)

    def leading_to(self, address: int) -> Iterator[Attachment]:
        """Yield the VPN connections to which a table leads packets for an address: those of the site that has it."""
        routes = (each.route(address) for each in self.tables.values())
        idents = dict.fromkeys(route.ident for route in routes if route is not None)
        found = (self.attachments[ident] for ident in idents if ident in self.attachments)
        yield from (each for each in found if each.joins is Joined.VPN)

    def is_near(self, line: Attachment, address: int) -> bool:
        """Tell whether a VPN connection's own gateway leads to an address without a peering."""
        table = self.table_of(line.hubs[0], line.ident)
        route = table.route(address) if table else None
        to = self.attachments.get(route.ident) if route else None
        return to is not None and to.joins is not Joined.PEERING

    def _of(self, hub: str) -> Iterator[Attachment]:
        return (each for each in self.attachments.values() if hub in each.hubs)


def read_hubs(resources: Resources) -> Hubs:
    """Return the transit gateways of a graph."""
    attachments = {each.ident: each for each in _attachments(resources)}
    tables = list(resources.of("ec2transitgateway/routeTable:RouteTable"))
    hub_of = {each.id: each.text("transitGatewayId") for each in tables}
    routes = _routes(resources, attachments)
    return Hubs(
        names={each.id: each.label for each in resources.of("ec2transitgateway/transitGateway:TransitGateway")},
        attachments=attachments,
        tables={each.id: table(each.id, each.label, routes[each.id]) for each in tables},
        by_attachment={
            (hub_of.get(each.text(_TABLE), ""), each.text(_ATTACHMENT)): each.text(_TABLE)
            for each in resources.of("ec2transitgateway/routeTableAssociation:RouteTableAssociation")
        },
    )


_TABLE, _ATTACHMENT = "transitGatewayRouteTableId", "transitGatewayAttachmentId"


def _attachments(resources: Resources) -> Iterator[Attachment]:
    for each in resources.of("ec2transitgateway/vpcAttachment:VpcAttachment"):
        hubs = (each.text("transitGatewayId"),)
        yield Attachment(each.id, each.label, Joined.VPC, hubs, each.text("vpcId"), each.texts("subnetIds"))
    accepters = resources.of("ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter")
    accepted = {each.text(_ATTACHMENT) for each in accepters}
    for each in resources.of("ec2transitgateway/peeringAttachment:PeeringAttachment"):
        ends = (each.text("transitGatewayId"), each.text("peerTransitGatewayId"))
        yield Attachment(each.id, each.label, Joined.PEERING, ends, live=each.id in accepted)
    for each in resources.of("ec2/vpnConnection:VpnConnection"):
        if each.text("transitGatewayId"):
            hubs = (each.text("transitGatewayId"),)
            yield Attachment(each.text(_ATTACHMENT), each.label, Joined.VPN, hubs, each.text("customerGatewayId"))


def _routes(resources: Resources, attachments: dict[str, Attachment]) -> defaultdict[str, list[Route]]:
    found: defaultdict[str, list[Route]] = defaultdict(list)
    for each in resources.of("ec2transitgateway/route:Route"):
        via = Via.BLACKHOLE if each.flag("blackhole") else Via.ATTACHMENT
        found[each.text(_TABLE)].append(Route(prefix(each.text("destinationCidrBlock")), via, each.text(_ATTACHMENT)))
    blocks = {vpc.id: vpc.text("cidrBlock") for vpc in resources.of("ec2/vpc:Vpc")}
    for each in resources.of("ec2transitgateway/routeTablePropagation:RouteTablePropagation"):
        attachment = attachments.get(each.text(_ATTACHMENT))
        if attachment is not None and attachment.far in blocks:
            route = Route(prefix(blocks[attachment.far]), Via.ATTACHMENT, attachment.ident)
            found[each.text(_TABLE)].append(route)
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """A VPN connection on a virtual private gateway: the VPC at its near end, and the blocks at its far end."""

    ident: str
    name: str
    gateway: str
    vpc: str
    blocks: tuple[Prefix, ...]
    fixed: bool
    """Whether its blocks are written down, not announced by BGP."""

    def leads_to(self, address: int) -> bool:
        """Tell whether an address lies behind it."""
        return any(block.holds(address) for block in self.blocks)


def is_hub(near: Line, far: Line) -> bool:
    """Tell whether a gateway leads from one connection to another: it tells each site what the others announce.

    Source: AWS Site-to-Site VPN user guide, VPN CloudHub.
    """
    return near.gateway == far.gateway and near.ident != far.ident and not (near.fixed or far.fixed)


def read_lines(resources: Resources) -> Iterable[Line]:
    """Yield the connections of a graph, with the blocks that are written down."""
    vpcs = {each.id: each.text("vpcId") for each in resources.of("ec2/vpnGateway:VpnGateway")}
    for each in resources.of("ec2/vpnGatewayAttachment:VpnGatewayAttachment"):
        vpcs[each.text("vpnGatewayId")] = each.text("vpcId")
    blocks: defaultdict[str, list[Prefix]] = defaultdict(list)
    for each in resources.of("ec2/vpnConnectionRoute:VpnConnectionRoute"):
        blocks[each.text("vpnConnectionId")].append(prefix(each.text("destinationCidrBlock")))
    for each in resources.of("ec2/vpnConnection:VpnConnection"):
        gateway = each.text("vpnGatewayId")
        if gateway:
            fixed = each.flag("staticRoutesOnly")
            yield Line(each.id, each.label, gateway, vpcs.get(gateway, ""), tuple(blocks[each.id]), fixed=fixed)


def announcing(lines: Iterable[Line], tables: Mapping[str, Table], resources: Resources) -> Iterable[Line]:
    """Yield the lines with what their sites announce: no graph holds that, so what route tables expect is taken.

    A route that waits for connections is for what lies behind those; one that waits for none, for any of its gateway.
    """
    owners = _owners(resources)
    for line in lines:
        routes = (route for each in tables.values() for route in each.routes)
        heard = dict.fromkeys(route.to for route in routes if (route.via, route.ident) == (Via.VPN, line.gateway))
        own = (block for block in heard if line.ident in owners.get((line.gateway, block), {line.ident}))
        yield line if line.fixed else replace(line, blocks=(*line.blocks, *own))


def _owners(resources: Resources) -> Mapping[tuple[str, Prefix], set[str]]:
    """Return the connections that routes to a gateway wait for, by the gateway and the block."""
    idents = {each.urn: each.id for each in resources.of("ec2/vpnConnection:VpnConnection")}
    found: defaultdict[tuple[str, Prefix], set[str]] = defaultdict(set)
    for each in resources.of("ec2/route:Route"):
        waits = {idents[urn] for urn in each.after if urn in idents}
        if waits and each.text("gatewayId") and each.text("destinationCidrBlock"):
            found[each.text("gatewayId"), prefix(each.text("destinationCidrBlock"))] |= waits
    return found
