"""Transit gateways: what is attached to them, and the table by which each attachment's packets are routed."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bedplate.reach.packet import prefix
from bedplate.reach.resource import Resources
from bedplate.reach.table import Route, Table, Via, table


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
