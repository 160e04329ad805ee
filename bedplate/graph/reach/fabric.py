"""The network of a graph: VPCs, subnets, and endpoints, which are everything with an address in a subnet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import product
from typing import Any

from bedplate.graph.reach.filters import (
    Acl,
    Packet,
    Prefix,
    Resource,
    Resources,
    SecurityGroup,
    acls,
    prefix,
    security_groups,
)
from bedplate.graph.reach.routing import (
    IKE,
    Attachment,
    Hubs,
    Route,
    Table,
    Via,
    VpnConnection,
    is_hub,
    read_connections,
    read_hubs,
    table,
    vpc_tables,
    with_announced,
)

UNUSED = "unused address"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint: a network interface, a machine, a mount target, or the machines that a group launches in a subnet.

    `forwards` means that its source/destination check is off: it may send packets of other hosts.
    """

    name: str
    groups: frozenset[str]
    public: int | None = None
    forwards: bool = False
    subnet: str = ""
    address: int | None = None


def interfaces(resources: Resources) -> dict[str, Endpoint]:
    """Return the network interfaces, single machines, resolvers and mount targets of a graph by id."""
    publics = _elastic(resources)
    endpoints = {
        resource.id: _interface(resource, publics.get(resource.id), key)
        for kind, key in _GROUPS_OF.items()
        for resource in resources.of(kind)
    }
    return endpoints | dict(_resolvers(resources)) | dict(_mount_targets(resources))


# The property with the security groups.
_GROUPS_OF = {"ec2/networkInterface:NetworkInterface": "securityGroups", "ec2/instance:Instance": "vpcSecurityGroupIds"}


def launched(resources: Resources, public_subnets: frozenset[str]) -> dict[str, Endpoint]:
    """Return the machines that an Auto Scaling group launches, by subnet."""
    templates = {resource.id: resource for resource in resources.of("ec2/launchTemplate:LaunchTemplate")}
    endpoints: dict[str, Endpoint] = {}
    for group in sorted(resources.of("autoscaling/group:Group"), key=lambda resource: resource.name):
        template = next((templates[ident] for ident in _template_ids(group) if ident in templates), None)
        if template is not None:
            for subnet in group.texts("vpcZoneIdentifiers"):
                endpoints.setdefault(subnet, _launch(group, template, subnet, public=subnet in public_subnets))
    return endpoints


def _interface(resource: Resource, public: int | None, groups: str) -> Endpoint:
    return Endpoint(
        name=resource.name,
        groups=frozenset(resource.texts(groups)),
        public=public or _number(resource.text("publicIp")),
        forwards=not resource.flag("sourceDestCheck", default=True),
        subnet=resource.text("subnetId"),
        address=_number(resource.text("privateIp") or next(iter(resource.texts("privateIps")), "")),
    )


def _resolvers(resources: Resources) -> Iterator[tuple[str, Endpoint]]:
    """Yield the addresses of Route 53 resolver endpoints."""
    for resource in resources.of("route53/resolverEndpoint:ResolverEndpoint"):
        for values in resource.blocks("ipAddresses"):
            address, subnet = str(values.get("ip") or ""), str(values.get("subnetId") or "")
            groups = frozenset(resource.texts("securityGroupIds"))
            yield f"{resource.id}/{address}", Endpoint(resource.name, groups, subnet=subnet, address=_number(address))


def _mount_targets(resources: Resources) -> Iterator[tuple[str, Endpoint]]:
    """Yield the addresses at which EFS file systems are mounted."""
    for resource in resources.of("efs/mountTarget:MountTarget"):
        groups = frozenset(resource.texts("securityGroups"))
        address = _number(resource.text("ipAddress"))
        yield resource.id, Endpoint(resource.name, groups, subnet=resource.text("subnetId"), address=address)


def _elastic(resources: Resources) -> dict[str, int]:
    """Return the elastic addresses by the id of their network interface or machine."""
    numbers = {resource.id: _number(resource.text("publicIp")) for resource in resources.of("ec2/eip:Eip")}
    pairs = [(resource.id, resource) for resource in resources.of("ec2/eip:Eip")]
    pairs += [
        (resource.text("allocationId"), resource) for resource in resources.of("ec2/eipAssociation:EipAssociation")
    ]
    owned = ((resource.text(key), numbers.get(ident)) for ident, resource in pairs for key in _OWNER_KEYS)
    return {owner: number for owner, number in owned if owner and number is not None}


_OWNER_KEYS = ("networkInterface", "networkInterfaceId", "instance", "instanceId")


def _template_ids(group: Resource) -> Iterator[str]:
    yield from (str(values.get("id", "")) for values in group.blocks("launchTemplate"))
    for policy in group.blocks("mixedInstancesPolicy"):
        specification = policy.get("launchTemplate") or {}
        yield str((specification.get("launchTemplateSpecification") or {}).get("launchTemplateId", ""))


def _launch(group: Resource, template: Resource, subnet: str, *, public: bool) -> Endpoint:
    cards = template.blocks("networkInterfaces")
    groups = {ident for card in cards for ident in card.get("securityGroups") or ()}
    wishes = [str(card["associatePublicIpAddress"]).lower() for card in cards if card.get("associatePublicIpAddress")]
    exposed = "true" in wishes or (public and "false" not in wishes)
    return Endpoint(
        name=group.name,
        groups=frozenset(groups | set(template.texts("vpcSecurityGroupIds"))),
        public=_SOME_PUBLIC if exposed else None,
        subnet=subnet,
    )


# AWS chooses the public address of a launched machine. This one, of TEST-NET-2 (RFC 5737), represents it.
_SOME_PUBLIC = int(IPv4Address("198.51.100.1"))


def _number(text: str) -> int | None:
    return int(IPv4Address(text)) if text.count(".") == 3 else None  # noqa: PLR2004  a dotted quad has three dots


@dataclass(frozen=True, slots=True)
class Direct:
    """A tunnel between two sites, and the blocks behind each of its ends."""

    name: str
    ends: tuple[tuple[Prefix, ...], tuple[Prefix, ...]]

    def leads(self, packet: Packet) -> bool:
        """Return whether the packet goes from one end to the other."""
        near, far = self.ends
        forth = _holds(near, packet.source) and _holds(far, packet.target)
        return forth or (_holds(far, packet.source) and _holds(near, packet.target))


def _holds(blocks: Iterable[Prefix], address: int) -> bool:
    return any(block.holds(address) for block in blocks)


@dataclass(frozen=True, slots=True)
class Vpc:
    """A VPC, its block, and its default security group."""

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
    """A VPC peering; `live` means that it is accepted."""

    ident: str
    name: str
    ends: tuple[str, str]
    live: bool


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network that a graph declares."""

    vpcs: Mapping[str, Vpc]
    subnets: tuple[Subnet, ...]
    tables: Mapping[str, Table]
    acls: Mapping[str, Acl]
    security_groups: Mapping[str, SecurityGroup]
    interfaces: Mapping[str, Endpoint]
    launched: Mapping[str, Endpoint]
    nats: Mapping[str, str]
    """The subnet of each public NAT gateway."""
    peers: Mapping[str, Peer]
    connections: tuple[VpnConnection, ...]
    hubs: Hubs
    site_tunnels: tuple[Direct, ...] = ()
    """Tunnels between sites, which no graph contains."""

    def direct_for(self, packet: Packet) -> Direct | None:
        """Return the tunnel by which a site sends the packet directly to another site."""
        return next((direct for direct in self.site_tunnels if direct.leads(packet)), None)

    def subnet_at(self, address: int) -> Subnet | None:
        """Return the subnet of an address."""
        return next((subnet for subnet in self.subnets if subnet.block.holds(address)), None)

    def route(self, subnet: Subnet, address: int) -> Route | None:
        """Return the route to an address in the subnet's route table."""
        table = self.tables.get(subnet.table)
        return table.route(address) if table else None

    def faces_internet(self, subnet: Subnet, address: int) -> bool:
        """Return whether the subnet's route to an address is an internet gateway."""
        route = self.route(subnet, address)
        return route is not None and route.via is Via.INTERNET

    def public_endpoint(self, address: int) -> Endpoint | None:
        """Return the endpoint with this public address, or the one with this private address if it has a public one."""
        public = next((endpoint for endpoint in self.interfaces.values() if endpoint.public == address), None)
        subnet = self.subnet_at(address)
        if public is not None or subnet is None:
            return public
        endpoint = self.endpoint_at(address, subnet)
        return None if endpoint.public is None else endpoint

    def forwarder(self, address: int) -> Endpoint | None:
        """Return the interface that route tables name as the last hop before an address."""
        routes = (table.route(address) for table in self.tables.values())
        hops = (route for route in routes if route is not None and route.via is Via.INTERFACE)
        idents = (route.ident for route in hops if route.across is None)
        return next((self.interfaces[ident] for ident in idents if ident in self.interfaces), None)

    def is_tunnel(self, near: Endpoint, far: Endpoint) -> bool:
        """Return whether two gateways have a tunnel: the security groups of each accept IKE from the other."""
        return all(
            caller.public is not None and self.lets_in(callee, Packet(caller.public, callee.public or 0, *IKE))
            for caller, callee in ((near, far), (far, near))
        )

    def lets_in(self, endpoint: Endpoint, packet: Packet, groups: frozenset[str] = frozenset()) -> bool:
        """Return whether a security group allows the packet in; `groups` are the groups of a sender in the same VPC."""
        own = (self.security_groups[ident] for ident in endpoint.groups if ident in self.security_groups)
        return any(rule.passes(packet, packet.source, groups) for group in own for rule in group.ins)

    def other_end(self, peer: Peer, vpc: str) -> Vpc | None:
        """Return the VPC at the other end of a peering."""
        return next((self.vpcs.get(end) for end in peer.ends if end != vpc), None)

    def subnet_in_zone(self, attachment: Attachment, zone: str) -> Subnet | None:
        """Return the subnet of an attachment in a zone."""
        subnets = (self.subnet(ident) for ident in attachment.subnets)
        return next((subnet for subnet in subnets if subnet is not None and subnet.zone == zone), None)

    def any_subnet(self, attachment: Attachment) -> Subnet | None:
        """Return the first subnet of an attachment."""
        return self.subnet(min(attachment.subnets, default=""))

    def attachment_for(self, packet: Packet) -> Attachment | None:
        """Return the VPN connection that a site uses: preferably one to the target's region."""
        attachments = sorted(self.hubs.leading_to(packet.source), key=lambda attachment: attachment.name)
        near = (attachment for attachment in attachments if self.hubs.is_near(attachment, packet.target))
        return next(near, next(iter(attachments), None))

    def connection_for(self, packet: Packet) -> VpnConnection | None:
        """Return the VPN connection by which a site reaches a VPC with a virtual private gateway."""
        connections = (connection for connection in self.connections if connection.leads_to(packet.source))
        near = (connection for connection in connections if self.vpcs[connection.vpc].block.holds(packet.target))
        return next(near, None)

    def connections_across(self, packet: Packet) -> tuple[VpnConnection, VpnConnection] | None:
        """Return the two VPN connections by which a virtual private gateway connects two sites."""
        near = (connection for connection in self.connections if connection.leads_to(packet.source))
        pairs = product(near, self.connections)
        return next((pair for pair in pairs if is_hub(*pair) and pair[1].leads_to(packet.target)), None)

    def is_within_site(self, packet: Packet) -> bool:
        """Return whether source and target are behind the same VPN connection."""
        hubs = (set(self.hubs.leading_to(address)) for address in (packet.source, packet.target))
        return bool(set.intersection(*hubs)) or any(
            connection.leads_to(packet.source) and connection.leads_to(packet.target) for connection in self.connections
        )

    def knows_site_of(self, address: int) -> bool:
        """Return whether an address is behind a VPN connection."""
        return any(connection.leads_to(address) for connection in self.connections) or any(
            self.hubs.leading_to(address)
        )

    def subnet(self, ident: str) -> Subnet | None:
        """Return the subnet with this id."""
        return next((subnet for subnet in self.subnets if subnet.ident == ident), None)

    def endpoint_at(self, address: int, subnet: Subnet) -> Endpoint:
        """Return the endpoint at an address: an interface, else a machine of a group, else an unused address."""
        for endpoint in self.interfaces.values():
            if endpoint.address == address and endpoint.subnet == subnet.ident:
                return endpoint
        unused = Endpoint(UNUSED, frozenset({self.vpcs[subnet.vpc].default_group}), subnet=subnet.ident)
        return self.launched.get(subnet.ident, unused)


def read_fabric(graph: Iterable[Mapping[str, Any]]) -> Fabric:
    """Return the network that the resources declare."""
    resources = Resources(graph)
    vpcs = {
        resource.id: Vpc(
            resource.id, resource.label, prefix(resource.text("cidrBlock")), resource.text("defaultSecurityGroupId")
        )
        for resource in resources.of("ec2/vpc:Vpc")
        if resource.text("cidrBlock")
    }
    publics = frozenset(
        resource.id for resource in resources.of("ec2/subnet:Subnet") if resource.flag("mapPublicIpOnLaunch")
    )
    connections = tuple(read_connections(resources))
    tables = _with_propagation(resources, connections, vpc_tables(resources))
    return Fabric(
        vpcs=vpcs,
        subnets=tuple(_subnets(resources, vpcs)),
        tables=tables,
        acls=acls(resources),
        security_groups=security_groups(resources),
        interfaces=interfaces(resources),
        launched=launched(resources, publics),
        nats={
            resource.id: resource.text("subnetId")
            for resource in resources.of("ec2/natGateway:NatGateway")
            if resource.text("connectivityType") != "private"
        },
        peers=_peers(resources),
        connections=tuple(with_announced(connections, tables, resources)),
        hubs=read_hubs(resources),
    )


def _subnets(resources: Resources, vpcs: Mapping[str, Vpc]) -> Iterable[Subnet]:
    named = {
        resource.text("subnetId"): resource.text("routeTableId")
        for resource in resources.of("ec2/routeTableAssociation:RouteTableAssociation")
    }
    mains = {resource.id: resource.text("mainRouteTableId") for resource in resources.of("ec2/vpc:Vpc")}
    for resource in resources.of("ec2/mainRouteTableAssociation:MainRouteTableAssociation"):
        mains[resource.text("vpcId")] = resource.text("routeTableId")
    for resource in resources.of("ec2/subnet:Subnet"):
        vpc = resource.text("vpcId")
        if vpc in vpcs and resource.text("cidrBlock"):
            own = named.get(resource.id) or mains[vpc]
            block = prefix(resource.text("cidrBlock"))
            yield Subnet(resource.id, resource.name, vpc, resource.text("availabilityZone"), block, own)


def _peers(resources: Resources) -> dict[str, Peer]:
    accepters = resources.of("ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter")
    accepted = {resource.text("vpcPeeringConnectionId") for resource in accepters if resource.flag("autoAccept")}
    return {
        resource.id: Peer(
            resource.id,
            resource.name,
            (resource.text("vpcId"), resource.text("peerVpcId")),
            live=resource.id in accepted or resource.flag("autoAccept"),
        )
        for resource in resources.of("ec2/vpcPeeringConnection:VpcPeeringConnection")
    }


def _with_propagation(
    resources: Resources, connections: tuple[VpnConnection, ...], tables: dict[str, Table]
) -> dict[str, Table]:
    """Return the tables with the routes that virtual private gateways propagate."""
    pairs = [
        (resource.text("routeTableId"), resource.text("vpnGatewayId"))
        for resource in resources.of("ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation")
    ]
    pairs += [
        (resource.id, ident)
        for resource in resources.of("ec2/routeTable:RouteTable", "ec2/defaultRouteTable:DefaultRouteTable")
        for ident in resource.texts("propagatingVgws")
    ]
    for ident, gateway in pairs:
        propagated = [
            Route(block, Via.VPN, gateway)
            for connection in connections
            if connection.gateway == gateway
            for block in connection.blocks
        ]
        if ident in tables:
            old = tables[ident]
            tables = tables | {ident: table(old.ident, old.name, [*old.routes, *propagated])}
    return tables
