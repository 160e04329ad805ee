"""Route tables, transit gateways and VPN connections.

A graph does not contain the IPsec tunnels between the fleet's own gateways. They follow from security group rules: a
route to a gateway's interface that depends on a rule for IKE continues to the address in that rule.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from bedplate.graph.reach.filters import Prefix, Resource, Resources, prefix

# Behind address translation, as of elastic IPs, IKE and ESP use only this port (RFC 3947, RFC 3948).
IKE = ("udp", 4500)
_ONE_ADDRESS = 32


def far_ends(resources: Resources) -> Mapping[str, int]:
    """Return the remote addresses of rules for IKE from a single address, by the URN of the rule."""
    addresses = {}
    for resource in resources.of("vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        if (resource.text("ipProtocol"), resource.values.get("fromPort")) == IKE and resource.text("cidrIpv4"):
            block = prefix(resource.text("cidrIpv4"))
            if block.length == _ONE_ADDRESS:
                addresses[resource.urn] = block.first
    return addresses


class Via(StrEnum):
    """The target of a route."""

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
    """A route to a block: the kind of target and its id.

    `across` is the public address of the other gateway if the target is an interface with a tunnel to it.
    """

    to: Prefix
    via: Via
    ident: str
    across: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A route table: longest prefixes first, static routes before propagated ones."""

    ident: str
    name: str
    routes: tuple[Route, ...]

    def route(self, address: int) -> Route | None:
        """Return the route for an address."""
        return next((route for route in self.routes if route.to.holds(address)), None)


def table(ident: str, name: str, routes: Iterable[Route]) -> Table:
    """Return the table with its routes sorted."""
    return Table(ident, name, tuple(sorted(routes, key=lambda route: -route.to.length)))


_TARGETS: Mapping[str, Via] = {
    "natGatewayId": Via.NAT,
    "networkInterfaceId": Via.INTERFACE,
    "transitGatewayId": Via.TRANSIT,
    "vpcPeeringConnectionId": Via.PEERING,
}
_GATEWAYS = {"igw-": Via.INTERNET, "vgw-": Via.VPN}


def vpc_tables(resources: Resources) -> dict[str, Table]:
    """Return the route tables of VPCs by id, including the local routes."""
    lone = list(_lone_routes(resources))
    blocks = {vpc.id: vpc.text("cidrBlock") for vpc in resources.of("ec2/vpc:Vpc")}
    tables = {}
    for resource in resources.of("ec2/routeTable:RouteTable", "ec2/defaultRouteTable:DefaultRouteTable"):
        own = [route for table_id, route in lone if table_id == resource.id]
        block = blocks.get(resource.text("vpcId"), "")
        local = [Route(prefix(block), Via.LOCAL, resource.text("vpcId"))] if block else []
        tables[resource.id] = table(resource.id, resource.label, [*local, *_listed(resource), *own])
    return tables


def _listed(resource: Resource) -> Iterator[Route]:
    for values in resource.blocks("routes"):
        if values.get("cidrBlock"):
            yield _route(str(values["cidrBlock"]), values)


def _lone_routes(resources: Resources) -> Iterator[tuple[str, Route]]:
    ends = far_ends(resources)
    for resource in resources.of("ec2/route:Route"):
        if resource.text("destinationCidrBlock"):
            route = _route(resource.text("destinationCidrBlock"), resource.values)
            waits = (ends[urn] for urn in resource.after if urn in ends and route.via is Via.INTERFACE)
            yield resource.text("routeTableId"), replace(route, across=next(waits, None))


def _route(block: str, values: Mapping[str, Any]) -> Route:
    for key, via in _TARGETS.items():
        if values.get(key):
            return Route(prefix(block), via, str(values[key]))
    gateway = str(values.get("gatewayId") or "")
    return Route(prefix(block), _GATEWAYS.get(gateway[:4], Via.BLACKHOLE), gateway)


class AttachmentKind(StrEnum):
    """The kind of an attachment of a transit gateway."""

    VPC = "VPC"
    PEERING = "peering"
    VPN = "VPN connection"


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment; `hubs` are its transit gateways: one, or both ends of a peering."""

    ident: str
    name: str
    kind: AttachmentKind
    hubs: tuple[str, ...]
    far: str = ""
    subnets: tuple[str, ...] = ()
    live: bool = True


@dataclass(frozen=True, slots=True)
class Hubs:
    """The transit gateways of a graph."""

    names: dict[str, str]
    attachments: dict[str, Attachment]
    tables: dict[str, Table]
    by_attachment: dict[tuple[str, str], str]
    """The table that is associated with an attachment, by (transit gateway, attachment)."""

    def table_of(self, hub: str, attachment: str) -> Table | None:
        """Return the table that is associated with an attachment."""
        return self.tables.get(self.by_attachment.get((hub, attachment), ""))

    def of_vpc(self, hub: str, vpc: str) -> Attachment | None:
        """Return the attachment of a VPC to a transit gateway."""
        return next(
            (
                attachment
                for attachment in self._of(hub)
                if attachment.kind is AttachmentKind.VPC and attachment.far == vpc
            ),
            None,
        )

    def leading_to(self, address: int) -> Iterator[Attachment]:
        """Yield the VPN connections to the site of an address."""
        routes = (table.route(address) for table in self.tables.values())
        idents = dict.fromkeys(route.ident for route in routes if route is not None)
        attachments = (self.attachments[ident] for ident in idents if ident in self.attachments)
        yield from (attachment for attachment in attachments if attachment.kind is AttachmentKind.VPN)

    def is_near(self, connection: Attachment, address: int) -> bool:
        """Return whether the transit gateway of a VPN connection reaches an address without a peering."""
        table = self.table_of(connection.hubs[0], connection.ident)
        route = table.route(address) if table else None
        to = self.attachments.get(route.ident) if route else None
        return to is not None and to.kind is not AttachmentKind.PEERING

    def _of(self, hub: str) -> Iterator[Attachment]:
        return (attachment for attachment in self.attachments.values() if hub in attachment.hubs)


def read_hubs(resources: Resources) -> Hubs:
    """Return the transit gateways of a graph."""
    attachments = {resource.ident: resource for resource in _attachments(resources)}
    tables = list(resources.of("ec2transitgateway/routeTable:RouteTable"))
    hub_of = {resource.id: resource.text("transitGatewayId") for resource in tables}
    routes = _routes(resources, attachments)
    return Hubs(
        names={
            resource.id: resource.label for resource in resources.of("ec2transitgateway/transitGateway:TransitGateway")
        },
        attachments=attachments,
        tables={resource.id: table(resource.id, resource.label, routes[resource.id]) for resource in tables},
        by_attachment={
            (hub_of.get(resource.text(_TABLE), ""), resource.text(_ATTACHMENT)): resource.text(_TABLE)
            for resource in resources.of("ec2transitgateway/routeTableAssociation:RouteTableAssociation")
        },
    )


_TABLE, _ATTACHMENT = "transitGatewayRouteTableId", "transitGatewayAttachmentId"


def _attachments(resources: Resources) -> Iterator[Attachment]:
    for resource in resources.of("ec2transitgateway/vpcAttachment:VpcAttachment"):
        hubs = (resource.text("transitGatewayId"),)
        yield Attachment(
            resource.id, resource.label, AttachmentKind.VPC, hubs, resource.text("vpcId"), resource.texts("subnetIds")
        )
    accepters = resources.of("ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter")
    accepted = {resource.text(_ATTACHMENT) for resource in accepters}
    for resource in resources.of("ec2transitgateway/peeringAttachment:PeeringAttachment"):
        ends = (resource.text("transitGatewayId"), resource.text("peerTransitGatewayId"))
        yield Attachment(resource.id, resource.label, AttachmentKind.PEERING, ends, live=resource.id in accepted)
    for resource in resources.of("ec2/vpnConnection:VpnConnection"):
        if resource.text("transitGatewayId"):
            hubs = (resource.text("transitGatewayId"),)
            yield Attachment(
                resource.text(_ATTACHMENT), resource.label, AttachmentKind.VPN, hubs, resource.text("customerGatewayId")
            )


def _routes(resources: Resources, attachments: dict[str, Attachment]) -> defaultdict[str, list[Route]]:
    routes: defaultdict[str, list[Route]] = defaultdict(list)
    for resource in resources.of("ec2transitgateway/route:Route"):
        via = Via.BLACKHOLE if resource.flag("blackhole") else Via.ATTACHMENT
        routes[resource.text(_TABLE)].append(
            Route(prefix(resource.text("destinationCidrBlock")), via, resource.text(_ATTACHMENT))
        )
    blocks = {vpc.id: vpc.text("cidrBlock") for vpc in resources.of("ec2/vpc:Vpc")}
    for resource in resources.of("ec2transitgateway/routeTablePropagation:RouteTablePropagation"):
        attachment = attachments.get(resource.text(_ATTACHMENT))
        if attachment is not None and attachment.far in blocks:
            route = Route(prefix(blocks[attachment.far]), Via.ATTACHMENT, attachment.ident)
            routes[resource.text(_TABLE)].append(route)
    return routes


@dataclass(frozen=True, slots=True)
class VpnConnection:
    """A VPN connection of a virtual private gateway: its VPC, and the blocks of the site."""

    ident: str
    name: str
    gateway: str
    vpc: str
    blocks: tuple[Prefix, ...]
    static: bool
    """Whether its routes are static, not announced by BGP."""

    def leads_to(self, address: int) -> bool:
        """Return whether the site has an address."""
        return any(block.holds(address) for block in self.blocks)


def is_hub(near: VpnConnection, far: VpnConnection) -> bool:
    """Return whether a gateway routes between two connections: it announces the routes of each site to the others.

    Source: AWS Site-to-Site VPN user guide, VPN CloudHub.
    """
    return near.gateway == far.gateway and near.ident != far.ident and not (near.static or far.static)


def read_connections(resources: Resources) -> Iterable[VpnConnection]:
    """Yield the VPN connections of virtual private gateways with their static routes."""
    vpcs = {resource.id: resource.text("vpcId") for resource in resources.of("ec2/vpnGateway:VpnGateway")}
    for resource in resources.of("ec2/vpnGatewayAttachment:VpnGatewayAttachment"):
        vpcs[resource.text("vpnGatewayId")] = resource.text("vpcId")
    blocks: defaultdict[str, list[Prefix]] = defaultdict(list)
    for resource in resources.of("ec2/vpnConnectionRoute:VpnConnectionRoute"):
        blocks[resource.text("vpnConnectionId")].append(prefix(resource.text("destinationCidrBlock")))
    for resource in resources.of("ec2/vpnConnection:VpnConnection"):
        gateway = resource.text("vpnGatewayId")
        if gateway:
            static = resource.flag("staticRoutesOnly")
            yield VpnConnection(
                resource.id, resource.label, gateway, vpcs.get(gateway, ""), tuple(blocks[resource.id]), static=static
            )


def with_announced(
    connections: Iterable[VpnConnection], tables: Mapping[str, Table], resources: Resources
) -> Iterable[VpnConnection]:
    """Yield the connections with the blocks that their sites announce: the graph only shows the routes to them.

    A route that depends on connections belongs to their sites; any other to all sites of its gateway.
    """
    owners = _owners(resources)
    for connection in connections:
        routes = (route for table in tables.values() for route in table.routes)
        announced = dict.fromkeys(
            route.to for route in routes if (route.via, route.ident) == (Via.VPN, connection.gateway)
        )
        own = (
            block
            for block in announced
            if connection.ident in owners.get((connection.gateway, block), {connection.ident})
        )
        yield connection if connection.static else replace(connection, blocks=(*connection.blocks, *own))


def _owners(resources: Resources) -> Mapping[tuple[str, Prefix], set[str]]:
    """Return the VPN connections that routes depend on, by the gateway and the block."""
    idents = {resource.urn: resource.id for resource in resources.of("ec2/vpnConnection:VpnConnection")}
    connections: defaultdict[tuple[str, Prefix], set[str]] = defaultdict(set)
    for resource in resources.of("ec2/route:Route"):
        waits = {idents[urn] for urn in resource.after if urn in idents}
        if waits and resource.text("gatewayId") and resource.text("destinationCidrBlock"):
            connections[resource.text("gatewayId"), prefix(resource.text("destinationCidrBlock"))] |= waits
    return connections
