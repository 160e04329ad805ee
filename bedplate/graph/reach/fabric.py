"""What has an address of a VPC: a network interface, an EFS mount target, a machine of a group, or nothing known."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import product
from typing import Any

from bedplate.graph.reach.filters import Acl, Door, Packet, Prefix, Resource, Resources, acls, doors, prefix
from bedplate.graph.reach.routing import (
    IKE,
    Attachment,
    Hubs,
    Line,
    Route,
    Table,
    Via,
    announcing,
    is_hub,
    read_hubs,
    read_lines,
    table,
    vpc_tables,
)

NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Stand:
    """The security groups of what stands there, and its public address if it has one.

    `forwards` tells that it takes packets that are neither from nor to its own address.
    """

    name: str
    groups: frozenset[str]
    public: int | None = None
    forwards: bool = False
    subnet: str = ""
    address: int | None = None


def interfaces(resources: Resources) -> dict[str, Stand]:
    """Return the network interfaces, single machines, resolvers and mount targets of a graph by id."""
    publics = _elastic(resources)
    found = {each.id: _interface(each, publics) for each in resources.of("ec2/networkInterface:NetworkInterface")}
    found |= {each.id: _machine(each, publics) for each in resources.of("ec2/instance:Instance")}
    return found | dict(_resolvers(resources)) | dict(_mount_targets(resources))


def launched(resources: Resources, public_subnets: frozenset[str]) -> dict[str, Stand]:
    """Return, for each subnet that an Auto Scaling group launches into, what it launches there."""
    templates = {each.id: each for each in resources.of("ec2/launchTemplate:LaunchTemplate")}
    found: dict[str, Stand] = {}
    for group in sorted(resources.of("autoscaling/group:Group"), key=lambda each: each.name):
        template = next((templates[ident] for ident in _template_ids(group) if ident in templates), None)
        if template is not None:
            for subnet in group.texts("vpcZoneIdentifiers"):
                found.setdefault(subnet, _launch(group, template, subnet, public=subnet in public_subnets))
    return found


def _interface(each: Resource, publics: dict[str, int]) -> Stand:
    return Stand(
        name=each.name,
        groups=frozenset(each.texts("securityGroups")),
        public=publics.get(each.id),
        forwards=not each.flag("sourceDestCheck", default=True),
        subnet=each.text("subnetId"),
        address=_number(each.text("privateIp") or next(iter(each.texts("privateIps")), "")),
    )


def _machine(each: Resource, publics: dict[str, int]) -> Stand:
    return Stand(
        name=each.name,
        groups=frozenset(each.texts("vpcSecurityGroupIds")),
        public=publics.get(each.id) or _number(each.text("publicIp")),
        forwards=not each.flag("sourceDestCheck", default=True),
        subnet=each.text("subnetId"),
        address=_number(each.text("privateIp")),
    )


def _resolvers(resources: Resources) -> Iterator[tuple[str, Stand]]:
    """Yield the addresses of resolvers: each bears the groups of its endpoint."""
    for each in resources.of("route53/resolverEndpoint:ResolverEndpoint"):
        for values in each.blocks("ipAddresses"):
            address, subnet = str(values.get("ip") or ""), str(values.get("subnetId") or "")
            groups = frozenset(each.texts("securityGroupIds"))
            yield f"{each.id}/{address}", Stand(each.name, groups, subnet=subnet, address=_number(address))


def _mount_targets(resources: Resources) -> Iterator[tuple[str, Stand]]:
    """Yield the addresses at which EFS file systems are mounted."""
    for each in resources.of("efs/mountTarget:MountTarget"):
        groups = frozenset(each.texts("securityGroups"))
        address = _number(each.text("ipAddress"))
        yield each.id, Stand(each.name, groups, subnet=each.text("subnetId"), address=address)


def _elastic(resources: Resources) -> dict[str, int]:
    """Return elastic addresses by the interface or machine that bears them."""
    numbers = {each.id: _number(each.text("publicIp")) for each in resources.of("ec2/eip:Eip")}
    pairs = [(each.id, each) for each in resources.of("ec2/eip:Eip")]
    pairs += [(each.text("allocationId"), each) for each in resources.of("ec2/eipAssociation:EipAssociation")]
    borne = ((each.text(key), numbers.get(ident)) for ident, each in pairs for key in _BEARERS)
    return {bearer: number for bearer, number in borne if bearer and number is not None}


_BEARERS = ("networkInterface", "networkInterfaceId", "instance", "instanceId")


def _template_ids(group: Resource) -> Iterator[str]:
    yield from (str(values.get("id", "")) for values in group.blocks("launchTemplate"))
    for policy in group.blocks("mixedInstancesPolicy"):
        specification = policy.get("launchTemplate") or {}
        yield str((specification.get("launchTemplateSpecification") or {}).get("launchTemplateId", ""))


def _launch(group: Resource, template: Resource, subnet: str, *, public: bool) -> Stand:
    cards = template.blocks("networkInterfaces")
    groups = {ident for card in cards for ident in card.get("securityGroups") or ()}
    wished = [str(card["associatePublicIpAddress"]).lower() for card in cards if card.get("associatePublicIpAddress")]
    exposed = "true" in wished or (public and "false" not in wished)
    return Stand(
        name=group.name,
        groups=frozenset(groups | set(template.texts("vpcSecurityGroupIds"))),
        public=_SOME_PUBLIC if exposed else None,
        subnet=subnet,
    )


# A launched machine's public address is AWS's choice: this one, of TEST-NET-2 (RFC 5737), stands for it.
_SOME_PUBLIC = int(IPv4Address("198.51.100.1"))


def _number(text: str) -> int | None:
    return int(IPv4Address(text)) if text.count(".") == 3 else None  # noqa: PLR2004  a dotted quad has three dots


@dataclass(frozen=True, slots=True)
class Direct:
    """A tunnel between two sites, and the blocks behind each of its ends."""

    name: str
    ends: tuple[tuple[Prefix, ...], tuple[Prefix, ...]]

    def leads(self, packet: Packet) -> bool:
        """Tell whether a packet passes it, from either end to the other."""
        one, other = self.ends
        there = _holds(one, packet.source) and _holds(other, packet.target)
        return there or (_holds(other, packet.source) and _holds(one, packet.target))


def _holds(blocks: Iterable[Prefix], address: int) -> bool:
    return any(block.holds(address) for block in blocks)


@dataclass(frozen=True, slots=True)
class Vpc:
    """A VPC, its block, and the group of whoever has none."""

    ident: str
    name: str
    block: Prefix
    default_group: str


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet, its zone and its route table."""

    ident: str
    name: str
    vpc: str
    zone: str
    block: Prefix
    table: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A peering of two VPCs; nothing crosses it before it is accepted."""

    ident: str
    name: str
    ends: tuple[str, str]
    live: bool


@dataclass(frozen=True, slots=True)
class Fabric:
    """A network as its graph declares it."""

    vpcs: Mapping[str, Vpc]
    subnets: tuple[Subnet, ...]
    tables: Mapping[str, Table]
    acls: Mapping[str, Acl]
    doors: Mapping[str, Door]
    stands: Mapping[str, Stand]
    launched: Mapping[str, Stand]
    nats: Mapping[str, str]
    """The subnet of each public NAT gateway."""
    peers: Mapping[str, Peer]
    lines: tuple[Line, ...]
    hubs: Hubs
    directs: tuple[Direct, ...] = ()
    """Tunnels between sites, which no graph holds."""

    def direct_for(self, packet: Packet) -> Direct | None:
        """Return the tunnel by which one site sends a packet to another without a cloud."""
        return next((each for each in self.directs if each.leads(packet)), None)

    def subnet_at(self, address: int) -> Subnet | None:
        """Return the subnet that holds an address."""
        return next((each for each in self.subnets if each.block.holds(address)), None)

    def route(self, subnet: Subnet, address: int) -> Route | None:
        """Return the route that a subnet's table has to an address."""
        table = self.tables.get(subnet.table)
        return table.route(address) if table else None

    def faces(self, subnet: Subnet, address: int) -> bool:
        """Tell whether a subnet leads to an address by an internet gateway."""
        route = self.route(subnet, address)
        return route is not None and route.via is Via.INTERNET

    def bearer(self, address: int) -> Stand | None:
        """Return what bears an address in public: what has it, or a machine there that has some public address."""
        public = next((stand for stand in self.stands.values() if stand.public == address), None)
        subnet = self.subnet_at(address)
        if public is not None or subnet is None:
            return public
        stand = self.stand_at(address, subnet)
        return None if stand.public is None else stand

    def forwarder(self, address: int) -> Stand | None:
        """Return the interface behind which an address lies, as route tables have it; not one that leads on to it."""
        routes = (each.route(address) for each in self.tables.values())
        found = (route for route in routes if route is not None and route.via is Via.INTERFACE)
        idents = (route.ident for route in found if route.across is None)
        return next((self.stands[ident] for ident in idents if ident in self.stands), None)

    def is_tunnel(self, near: Stand, far: Stand) -> bool:
        """Tell whether two gateways have a tunnel of their own: each lets in what the other dials it by."""
        return all(
            one.public is not None and self.lets_in(other, Packet(one.public, other.public or 0, *IKE))
            for one, other in ((near, far), (far, near))
        )

    def lets_in(self, stand: Stand, packet: Packet, groups: frozenset[str] = frozenset()) -> bool:
        """Tell whether a security group of a stand lets a packet in; `groups` are the sender's, in the same VPC."""
        doors = (self.doors[group] for group in stand.groups if group in self.doors)
        return any(rule.passes(packet, packet.source, groups) for door in doors for rule in door.ins)

    def other_end(self, peer: Peer, vpc: str) -> Vpc | None:
        """Return the VPC at the other end of a peering."""
        return next((self.vpcs.get(end) for end in peer.ends if end != vpc), None)

    def zone_door(self, attachment: Attachment, zone: str) -> Subnet | None:
        """Return the subnet in a zone where an attachment has an interface."""
        doors = (self.subnet(ident) for ident in attachment.subnets)
        return next((door for door in doors if door is not None and door.zone == zone), None)

    def any_door(self, attachment: Attachment) -> Subnet | None:
        """Return the first subnet where an attachment has an interface."""
        return self.subnet(min(attachment.subnets, default=""))

    def attachment_for(self, packet: Packet) -> Attachment | None:
        """Return the VPN connection by which a site sends a packet: the one nearest to the target that leads back."""
        lines = sorted(self.hubs.leading_to(packet.source), key=lambda each: each.name)
        return next((each for each in lines if self.hubs.is_near(each, packet.target)), next(iter(lines), None))

    def line_for(self, packet: Packet) -> Line | None:
        """Return the VPN connection by which a site sends a packet to a VPC with a gateway of its own."""
        lines = (each for each in self.lines if each.leads_to(packet.source))
        return next((each for each in lines if self.vpcs[each.vpc].block.holds(packet.target)), None)

    def lines_across(self, packet: Packet) -> tuple[Line, Line] | None:
        """Return the two VPN connections by which a virtual private gateway leads from site to site."""
        ways = product((each for each in self.lines if each.leads_to(packet.source)), self.lines)
        return next((two for two in ways if is_hub(*two) and two[1].leads_to(packet.target)), None)

    def is_in_one_site(self, packet: Packet) -> bool:
        """Tell whether both ends of a packet lie behind one VPN connection."""
        hubs = (set(self.hubs.leading_to(address)) for address in (packet.source, packet.target))
        return bool(set.intersection(*hubs)) or any(
            each.leads_to(packet.source) and each.leads_to(packet.target) for each in self.lines
        )

    def knows_site_of(self, address: int) -> bool:
        """Tell whether a VPN connection leads to an address."""
        return any(each.leads_to(address) for each in self.lines) or any(self.hubs.leading_to(address))

    def subnet(self, ident: str) -> Subnet | None:
        """Return the subnet of an id."""
        return next((each for each in self.subnets if each.ident == ident), None)

    def stand_at(self, address: int, subnet: Subnet) -> Stand:
        """Return what stands at an address of a subnet: an interface, else what groups launch there, else nobody."""
        for stand in self.stands.values():
            if stand.address == address and stand.subnet == subnet.ident:
                return stand
        nobody = Stand(NOBODY, frozenset({self.vpcs[subnet.vpc].default_group}), subnet=subnet.ident)
        return self.launched.get(subnet.ident, nobody)


def read_fabric(graph: Iterable[Mapping[str, Any]]) -> Fabric:
    """Return the network that the resources of a graph make."""
    resources = Resources(graph)
    vpcs = {
        each.id: Vpc(each.id, each.label, prefix(each.text("cidrBlock")), each.text("defaultSecurityGroupId"))
        for each in resources.of("ec2/vpc:Vpc")
        if each.text("cidrBlock")
    }
    publics = frozenset(each.id for each in resources.of("ec2/subnet:Subnet") if each.flag("mapPublicIpOnLaunch"))
    lines = tuple(read_lines(resources))
    tables = _learnt(resources, lines, vpc_tables(resources))
    return Fabric(
        vpcs=vpcs,
        subnets=tuple(_subnets(resources, vpcs)),
        tables=tables,
        acls=acls(resources),
        doors=doors(resources),
        stands=interfaces(resources),
        launched=launched(resources, publics),
        nats={
            each.id: each.text("subnetId")
            for each in resources.of("ec2/natGateway:NatGateway")
            if each.text("connectivityType") != "private"
        },
        peers=_peers(resources),
        lines=tuple(announcing(lines, tables, resources)),
        hubs=read_hubs(resources),
    )


def _subnets(resources: Resources, vpcs: Mapping[str, Vpc]) -> Iterable[Subnet]:
    named = {
        each.text("subnetId"): each.text("routeTableId")
        for each in resources.of("ec2/routeTableAssociation:RouteTableAssociation")
    }
    mains = {each.id: each.text("mainRouteTableId") for each in resources.of("ec2/vpc:Vpc")}
    for each in resources.of("ec2/mainRouteTableAssociation:MainRouteTableAssociation"):
        mains[each.text("vpcId")] = each.text("routeTableId")
    for each in resources.of("ec2/subnet:Subnet"):
        vpc = each.text("vpcId")
        if vpc in vpcs and each.text("cidrBlock"):
            own = named.get(each.id) or mains[vpc]
            block = prefix(each.text("cidrBlock"))
            yield Subnet(each.id, each.name, vpc, each.text("availabilityZone"), block, own)


def _peers(resources: Resources) -> dict[str, Peer]:
    accepters = resources.of("ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter")
    accepted = {each.text("vpcPeeringConnectionId") for each in accepters if each.flag("autoAccept")}
    return {
        each.id: Peer(
            each.id,
            each.name,
            (each.text("vpcId"), each.text("peerVpcId")),
            live=each.id in accepted or each.flag("autoAccept"),
        )
        for each in resources.of("ec2/vpcPeeringConnection:VpcPeeringConnection")
    }


def _learnt(resources: Resources, lines: tuple[Line, ...], tables: dict[str, Table]) -> dict[str, Table]:
    """Return the tables with what they learn from virtual private gateways beside their own routes."""
    pairs = [
        (each.text("routeTableId"), each.text("vpnGatewayId"))
        for each in resources.of("ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation")
    ]
    pairs += [
        (each.id, ident)
        for each in resources.of("ec2/routeTable:RouteTable", "ec2/defaultRouteTable:DefaultRouteTable")
        for ident in each.texts("propagatingVgws")
    ]
    for ident, gateway in pairs:
        learnt = [Route(block, Via.VPN, gateway) for line in lines if line.gateway == gateway for block in line.blocks]
        if ident in tables:
            old = tables[ident]
            tables = tables | {ident: table(old.ident, old.name, [*old.routes, *learnt])}
    return tables
