"""The trace of a packet: its hops, and where it arrives or why it is dropped."""

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.graph.reach.fabric import Endpoint, Fabric, Subnet, Vpc
from bedplate.graph.reach.filters import Packet, is_private
from bedplate.graph.reach.routing import Attachment, AttachmentKind, Hubs, Route, Via

# Packets that pass more gateways than this are in a routing loop.
_MAX_HOPS = 16
_UNKNOWN_SOURCE = "unknown source address: no VPC, no gateway and no VPN connection has it"


class Dropped(Exception):
    """The packet is dropped; the text says why."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A network element that the packet passes, and the rule or route by which it does."""

    at: str
    by: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The path of one packet. `end` is where it arrives, or why it is dropped."""

    hops: tuple[Hop, ...]
    delivered: bool
    end: str


@dataclass(frozen=True, slots=True)
class Trip:
    """The traces of a packet and of its reply; None if the packet does not arrive."""

    out: Trace
    back: Trace | None

    @property
    def answered(self) -> bool:
        """Whether the packet and its reply arrive."""
        return self.out.delivered and self.back is not None and self.back.delivered


@dataclass(frozen=True, slots=True)
class Guards:
    """The network ACLs and security groups that one packet passes. Each method raises Dropped if one denies it."""

    fabric: Fabric
    packet: Packet

    def leave(self, subnet: Subnet) -> None:
        """Leave a subnet, by its network ACL."""
        acl = self.fabric.acls.get(subnet.ident)
        if acl is not None and not acl.releases(self.packet):
            raise Dropped(f"the network ACL {acl.name} of {subnet.name} denies it outbound")

    def enter(self, subnet: Subnet, came_from: Subnet | None = None) -> None:
        """Enter a subnet, by its network ACL. Traffic inside a subnet does not pass it."""
        acl = self.fabric.acls.get(subnet.ident)
        inside = came_from is not None and came_from.ident == subnet.ident
        if acl is not None and not inside and not acl.admits(self.packet):
            raise Dropped(f"the network ACL {acl.name} of {subnet.name} denies it inbound")

    def out_of(self, endpoint: Endpoint, home: str) -> None:
        """Pass the security groups of the sender. Their rules can name groups in the same VPC."""
        if not self.packet.answers and not self._lets_out(endpoint, home):
            raise Dropped(f"no security group of {endpoint.name} allows it outbound")

    def into(self, endpoint: Endpoint, subnet: Subnet, groups: frozenset[str]) -> None:
        """Pass the security groups of the target. Their rules can name groups in the same VPC."""
        if not self.packet.answers and not self.fabric.lets_in(endpoint, self.packet, groups):
            raise Dropped(f"no security group of {endpoint.name} in {subnet.name} allows it inbound")

    def _lets_out(self, endpoint: Endpoint, home: str) -> bool:
        groups, target = self.fabric.security_groups, self.packet.target
        target_groups = self._groups_at(target, home)
        rules = (rule for ident in endpoint.groups if ident in groups for rule in groups[ident].outs)
        return any(rule.passes(self.packet, target, target_groups) for rule in rules)

    def _groups_at(self, address: int, home: str) -> frozenset[str]:
        """Return the security groups of the endpoint at an address, if it is in this VPC."""
        subnet = self.fabric.subnet_at(address)
        return frozenset() if subnet is None or subnet.vpc != home else self.fabric.endpoint_at(address, subnet).groups


class Journey:
    """The path of one packet so far. Methods that move it raise Dropped."""

    def __init__(self, fabric: Fabric, packet: Packet) -> None:
        self.fabric, self.packet, self.guards = fabric, packet, Guards(fabric, packet)
        self.hops: list[Hop] = []
        self._groups: frozenset[str] = frozenset()
        self._home = ""  # the sender's VPC: only there can rules name its security groups

    def note(self, at: str, by: str) -> None:
        """Add a hop."""
        self.hops.append(Hop(at, by))

    def set_out(self, endpoint: Endpoint, subnet: Subnet, does: str) -> None:
        """Leave the endpoint that sends or forwards the packet, by its security groups."""
        self._groups, self._home = endpoint.groups, subnet.vpc
        self.note(subnet.name, f"{endpoint.name} {does}")
        self.guards.out_of(endpoint, self._home)

    def deliver(self, vpc: Vpc, came_from: Subnet | None = None) -> str:
        """Deliver the packet to the endpoint at its target within a VPC. Return that endpoint's name."""
        subnet = self.fabric.subnet_at(self.packet.target)
        if subnet is None or subnet.vpc != vpc.ident:
            raise Dropped(f"the target is in no subnet of {vpc.name}")
        endpoint = self.fabric.endpoint_at(self.packet.target, subnet)
        self.arrive(subnet, endpoint, came_from)
        return f"{endpoint.name} in {subnet.name}"

    def arrive(self, subnet: Subnet, endpoint: Endpoint, came_from: Subnet | None = None) -> None:
        """Arrive at an endpoint, by network ACLs and its security groups."""
        if came_from is not None and came_from.ident != subnet.ident:
            self.guards.leave(came_from)
        self.guards.enter(subnet, came_from)
        groups = self._groups if subnet.vpc == self._home else frozenset()
        self.guards.into(endpoint, subnet, groups)


def by_internet(journey: Journey, endpoint: Endpoint) -> str:
    """Leave by an internet gateway, which translates only an endpoint's own address."""
    if is_private(journey.packet.target):
        raise Dropped("the internet does not route private addresses")
    if endpoint.address not in (None, journey.packet.source):
        raise Dropped(f"the internet gateway translates only the address of {endpoint.name}, not of hosts behind it")
    if endpoint.public is None:
        raise Dropped(f"{endpoint.name} has no public address")
    return "the internet"


def by_nat(journey: Journey, route: Route) -> str:
    """Leave by a public NAT gateway. Its subnet must route to an internet gateway."""
    fabric, target = journey.fabric, journey.packet.target
    subnet = fabric.subnet(fabric.nats.get(route.ident, ""))
    if subnet is None or is_private(target):
        raise Dropped("a public NAT gateway routes only to the internet")
    journey.guards.enter(subnet)
    if not fabric.faces_internet(subnet, target):
        raise Dropped(f"the NAT gateway in {subnet.name} has no route to an internet gateway")
    journey.note(Via.NAT, f"in {subnet.name}, from its public address")
    return "the internet"


def by_peering(journey: Journey, route: Route, subnet: Subnet) -> str:
    """Cross a VPC peering: source and target must be in its two VPCs."""
    fabric, packet = journey.fabric, journey.packet
    peer = fabric.peers.get(route.ident)
    if peer is None or not peer.live:
        raise Dropped(f"the route to {route.to} uses a VPC peering that is not accepted")
    near, far = fabric.vpcs[subnet.vpc], fabric.other_end(peer, subnet.vpc)
    if far is None or not near.block.holds(packet.source) or not far.block.holds(packet.target):
        raise Dropped(f"the VPC peering {peer.name} only carries traffic between its two VPCs")
    journey.note(peer.name, f"peering to {far.name}")
    return journey.deliver(far)


def by_vpn(journey: Journey, route: Route, subnet: Subnet) -> str:
    """Leave by a virtual private gateway: source and target must be its VPC and a site."""
    fabric, packet = journey.fabric, journey.packet
    sites = (connection for connection in fabric.connections if connection.gateway == route.ident)
    connection = next((site for site in sites if site.leads_to(packet.target)), None)
    if connection is None or not fabric.vpcs[subnet.vpc].block.holds(packet.source):
        raise Dropped("a virtual private gateway only carries traffic between its VPC and its sites")
    journey.note(connection.name, "over the VPN connection")
    return "the site"


def enter(journey: Journey, hub: str, subnet: Subnet) -> Attachment:
    """Enter a transit gateway by the VPC's attachment. It must have a subnet in the sender's zone."""
    attachment = journey.fabric.hubs.of_vpc(hub, subnet.vpc)
    if attachment is None:
        raise Dropped(f"the VPC of {subnet.name} is not attached to the transit gateway")
    entry = journey.fabric.subnet_in_zone(attachment, subnet.zone)
    if entry is None:
        raise Dropped(f"the attachment {attachment.name} has no subnet in {subnet.zone}")
    journey.guards.enter(entry, subnet)
    return attachment


def crossing(hubs: Hubs, target: int, hub: str, came_by: Attachment) -> Iterator[tuple[Hop, Attachment]]:
    """Yield the route table of each transit gateway on the path, with the attachment by which the packet leaves it."""
    for _ in range(_MAX_HOPS):
        hop, leaves_by = _routed(hubs, target, hub, came_by)
        yield hop, leaves_by
        if leaves_by.kind is not AttachmentKind.PEERING:
            return
        hub, came_by = next(other for other in leaves_by.hubs if other != hub), leaves_by
    raise Dropped("routing loop between transit gateways")


def come_out(journey: Journey, attachment: Attachment) -> Subnet:
    """Return the subnet where the packet leaves an attachment: in the target's zone if it has one there."""
    fabric = journey.fabric
    target = fabric.subnet_at(journey.packet.target)
    subnet = fabric.subnet_in_zone(attachment, target.zone if target else "") or fabric.any_subnet(attachment)
    if subnet is None:
        raise Dropped(f"the attachment {attachment.name} has no subnet")
    return subnet


def _routed(hubs: Hubs, target: int, hub: str, came_by: Attachment) -> tuple[Hop, Attachment]:
    table = hubs.table_of(hub, came_by.ident)
    if table is None:
        raise Dropped(f"the attachment {came_by.name} has no transit gateway route table")
    route = table.route(target)
    if route is None or route.via is Via.BLACKHOLE:
        raise Dropped(f"the transit gateway route table {table.name} has no route to the target")
    leaves_by = hubs.attachments.get(route.ident)
    if leaves_by is None or not leaves_by.live:
        raise Dropped(f"the route to {route.to} uses an attachment that is missing or not accepted")
    at, by = f"transit gateway table {table.name}", f"{route.to} by {leaves_by.kind} {leaves_by.name}"
    return Hop(at, by), leaves_by


def trip(fabric: Fabric, packet: Packet) -> Trip:
    """Return the traces of a packet and of its reply."""
    out = walk(fabric, packet)
    if not out.delivered:
        return Trip(out, None)
    if any(hop.at.startswith(Via.NAT) for hop in out.hops):
        return Trip(out, Trace((), delivered=True, end="translated back by the NAT gateway"))
    return Trip(out, walk(fabric, packet.reply))


def walk(fabric: Fabric, packet: Packet) -> Trace:
    """Return the trace of one packet. A reply needs rules of network ACLs, but none of security groups."""
    journey = Journey(fabric, packet)
    try:
        end = _Walker(journey).send()
    except Dropped as dropped:
        return Trace(tuple(journey.hops), delivered=False, end=str(dropped))
    return Trace(tuple(journey.hops), delivered=True, end=end)


class _Walker:
    """Forwards a packet step by step. Each method returns where the packet arrives in the end."""

    def __init__(self, journey: Journey) -> None:
        self._journey, self._fabric, self._packet = journey, journey.fabric, journey.packet

    def send(self) -> str:
        """Send the packet from its source."""
        subnet = self._fabric.subnet_at(self._packet.source)
        if subnet is not None:
            return self._set_out(self._fabric.endpoint_at(self._packet.source, subnet), subnet, "sends")
        gateway = self._fabric.forwarder(self._packet.source)
        if gateway is not None:
            return self._from_forwarder(gateway)
        return self._from_site() if is_private(self._packet.source) else self._from_internet()

    def _from_forwarder(self, endpoint: Endpoint) -> str:
        subnet = self._fabric.subnet(endpoint.subnet)
        if subnet is None or not endpoint.forwards:
            raise Dropped(f"{endpoint.name} does not forward packets: its source/destination check is on")
        return self._forward(endpoint, subnet)

    def _forward(self, endpoint: Endpoint, subnet: Subnet) -> str:
        """Leave a gateway: by its tunnel, to the network behind it, or into its VPC."""
        route = self._fabric.route(subnet, self._packet.target)
        if route is None or self._fabric.interfaces.get(route.ident) is not endpoint:
            return self._set_out(endpoint, subnet, "forwards")
        return self._cross(endpoint, route.across) if route.across else f"behind {endpoint.name} in {subnet.name}"

    def _cross(self, near: Endpoint, address: int) -> str:
        """Pass a tunnel between two gateways of the fleet."""
        if len(self._journey.hops) > _MAX_HOPS:
            raise Dropped("routing loop between gateways")
        far = self._fabric.public_endpoint(address)
        subnet = self._fabric.subnet(far.subnet) if far else None
        if far is None or subnet is None or not self._fabric.is_tunnel(near, far):
            raise Dropped(f"{near.name} has no tunnel to the next gateway: a security group denies IKE")
        if not far.forwards:
            raise Dropped(f"{far.name} does not forward packets: its source/destination check is on")
        self._journey.note(f"tunnel of {near.name}", f"to {far.name} in {subnet.name}")
        return self._forward(far, subnet)

    def _set_out(self, endpoint: Endpoint, subnet: Subnet, does: str) -> str:
        self._journey.set_out(endpoint, subnet, does)
        return self._by_table(subnet, endpoint)

    def _from_internet(self) -> str:
        endpoint = self._fabric.public_endpoint(self._packet.target)
        if endpoint is None:
            raise Dropped("the internet has no route to that address")
        subnet = self._fabric.subnet(endpoint.subnet)
        if subnet is None or not self._fabric.faces_internet(subnet, self._packet.source):
            raise Dropped(f"{endpoint.name} has a public address but no route to an internet gateway")
        self._journey.note("internet", f"to the public address of {endpoint.name}")
        self._journey.arrive(subnet, endpoint)
        return f"{endpoint.name} in {subnet.name}"

    def _from_site(self) -> str:
        if self._fabric.is_within_site(self._packet):
            return "the site, without leaving it"
        direct = self._fabric.direct_for(self._packet)
        if direct is not None:
            self._journey.note(direct.name, "by the tunnel between the two gateways")
            return "the site"
        attachment = self._fabric.attachment_for(self._packet)
        if attachment is not None:
            self._journey.note(attachment.name, "over the VPN connection")
            return self._through_hub(attachment.hubs[0], attachment)
        connection = self._fabric.connection_for(self._packet)
        if connection is not None:
            self._journey.note(connection.name, "over the VPN connection")
            return self._journey.deliver(self._fabric.vpcs[connection.vpc])
        return self._across()

    def _across(self) -> str:
        """Go from one site to another by a virtual private gateway."""
        connections = self._fabric.connections_across(self._packet)
        if connections is None:
            is_known = self._fabric.knows_site_of(self._packet.source)
            raise Dropped("no VPN connection of the source's site leads to the target" if is_known else _UNKNOWN_SOURCE)
        for connection in connections:
            self._journey.note(connection.name, "over the VPN connection")
        return "the site"

    def _by_table(self, subnet: Subnet, endpoint: Endpoint) -> str:
        """Leave a subnet by its route table."""
        table, route = self._fabric.tables.get(subnet.table), self._fabric.route(subnet, self._packet.target)
        if table is None or route is None:
            raise Dropped(f"the route table of {subnet.name} has no route to the target")
        self._journey.note(table.name, f"{route.to} by {route.via}")
        if route.via is Via.LOCAL:
            return self._journey.deliver(self._fabric.vpcs[subnet.vpc], subnet)
        self._journey.guards.leave(subnet)
        return self._follow(route, subnet, endpoint)

    def _follow(self, route: Route, subnet: Subnet, endpoint: Endpoint) -> str:
        match route.via:
            case Via.INTERNET:
                return by_internet(self._journey, endpoint)
            case Via.NAT:
                return by_nat(self._journey, route)
            case Via.INTERFACE:
                return self._by_interface(route, subnet)
            case Via.PEERING:
                return by_peering(self._journey, route, subnet)
            case Via.TRANSIT:
                return self._through_hub(route.ident, enter(self._journey, route.ident, subnet))
            case Via.VPN:
                return by_vpn(self._journey, route, subnet)
        raise Dropped(f"the route to {route.to} is a blackhole")

    def _by_interface(self, route: Route, came_from: Subnet) -> str:
        """Forward the packet to a network interface with a network or a tunnel behind it."""
        endpoint = self._fabric.interfaces.get(route.ident)
        subnet = self._fabric.subnet(endpoint.subnet) if endpoint else None
        if endpoint is None or subnet is None:
            raise Dropped(f"the route to {route.to} uses a network interface that does not exist")
        if not endpoint.forwards:
            raise Dropped(f"{endpoint.name} does not forward packets: its source/destination check is on")
        self._journey.arrive(subnet, endpoint, came_from)
        if route.across:
            return self._cross(endpoint, route.across)
        if self._fabric.subnet_at(self._packet.target) is not None:
            raise Dropped(f"{endpoint.name} has no tunnel to another VPC")
        return f"behind {endpoint.name} in {subnet.name}"

    def _through_hub(self, hub: str, came_by: Attachment) -> str:
        """Pass one or several transit gateways."""
        leaves_by = came_by
        for hop, by in crossing(self._fabric.hubs, self._packet.target, hub, came_by):
            self._journey.hops.append(hop)
            leaves_by = by
        if leaves_by.kind is AttachmentKind.VPN:
            return "the site"
        return self._by_table(come_out(self._journey, leaves_by), Endpoint(leaves_by.name, frozenset()))
