"""What became of a packet."""

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.graph.reach.fabric import Fabric, Stand, Subnet, Vpc
from bedplate.graph.reach.filters import Packet, is_private
from bedplate.graph.reach.routing import Attachment, Hubs, Joined, Route, Via


class Ended(Exception):
    """The packet went no further; the text says why."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing that a packet passed, and by what it passed there."""

    at: str
    by: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of one packet; `end` says where it arrived, or where it ended and why."""

    hops: tuple[Hop, ...]
    delivered: bool
    end: str


@dataclass(frozen=True, slots=True)
class Trip:
    """A packet and its answer; None where there was nothing to answer."""

    out: Trace
    back: Trace | None

    @property
    def answered(self) -> bool:
        """Whether the packet arrived and its answer came back."""
        return self.out.delivered and self.back is not None and self.back.delivered


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of a network, as one packet meets them; each method raises Ended where it is not let through."""

    fabric: Fabric
    packet: Packet

    def leave(self, subnet: Subnet) -> None:
        """Pass the network ACL of a subnet outwards."""
        acl = self.fabric.acls.get(subnet.ident)
        if acl is not None and not acl.releases(self.packet):
            raise Ended(f"the network ACL {acl.name} of {subnet.name} does not let it out")

    def enter(self, subnet: Subnet, came_from: Subnet | None = None) -> None:
        """Pass the network ACL of a subnet inwards; whoever comes from the same subnet does not meet it."""
        acl = self.fabric.acls.get(subnet.ident)
        inside = came_from is not None and came_from.ident == subnet.ident
        if acl is not None and not inside and not acl.admits(self.packet):
            raise Ended(f"the network ACL {acl.name} of {subnet.name} does not let it in")

    def out_of(self, stand: Stand, home: str) -> None:
        """Pass the security groups of whoever sends, which know those of a target in the same VPC."""
        if not self.packet.answers and not self._lets_out(stand, home):
            raise Ended(f"no security group of {stand.name} lets it out")

    def into(self, stand: Stand, subnet: Subnet, groups: frozenset[str]) -> None:
        """Pass the security groups of a target, which know those of a sender in the same VPC."""
        if not self.packet.answers and not self.fabric.lets_in(stand, self.packet, groups):
            raise Ended(f"no security group of {stand.name} in {subnet.name} lets it in")

    def _lets_out(self, stand: Stand, home: str) -> bool:
        known = self._known(self.packet.target, home)
        doors = (self.fabric.doors[group] for group in stand.groups if group in self.fabric.doors)
        return any(rule.passes(self.packet, self.packet.target, known) for door in doors for rule in door.outs)

    def _known(self, address: int, home: str) -> frozenset[str]:
        """Return the groups of what stands at an address of that VPC."""
        subnet = self.fabric.subnet_at(address)
        return frozenset() if subnet is None or subnet.vpc != home else self.fabric.stand_at(address, subnet).groups


class Journey:
    """One packet in a network; whatever moves it raises Ended where it goes no further."""

    def __init__(self, fabric: Fabric, packet: Packet) -> None:
        self.fabric, self.packet, self.guards = fabric, packet, Guards(fabric, packet)
        self.hops: list[Hop] = []
        self._groups: frozenset[str] = frozenset()
        self._home = ""  # the VPC that it was sent in: only there do security groups know the sender's

    def note(self, at: str, by: str) -> None:
        """Remember something that it has passed, and by what it passed there."""
        self.hops.append(Hop(at, by))

    def set_out(self, stand: Stand, subnet: Subnet, does: str) -> None:
        """Leave whoever sends it, or sends it on, by their security groups."""
        self._groups, self._home = stand.groups, subnet.vpc
        self.note(subnet.name, f"{stand.name} {does}")
        self.guards.out_of(stand, self._home)

    def deliver(self, vpc: Vpc, came_from: Subnet | None = None) -> str:
        """Hand it to whatever stands at its target within a VPC; return where that is."""
        subnet = self.fabric.subnet_at(self.packet.target)
        if subnet is None or subnet.vpc != vpc.ident:
            raise Ended(f"no subnet of {vpc.name} holds the target")
        stand = self.fabric.stand_at(self.packet.target, subnet)
        self.arrive(subnet, stand, came_from)
        return f"{stand.name} in {subnet.name}"

    def arrive(self, subnet: Subnet, stand: Stand, came_from: Subnet | None = None) -> None:
        """Come in where something stands, by network ACLs and its security groups."""
        if came_from is not None and came_from.ident != subnet.ident:
            self.guards.leave(came_from)
        self.guards.enter(subnet, came_from)
        known = self._groups if subnet.vpc == self._home else frozenset()
        self.guards.into(stand, subnet, known)


def by_internet(journey: Journey, stand: Stand) -> str:
    """Leave by an internet gateway, which knows public addresses alone."""
    if is_private(journey.packet.target):
        raise Ended("the internet has no way to a private address")
    if stand.address not in (None, journey.packet.source):
        raise Ended(f"an internet gateway knows the address of {stand.name} itself, none behind it")
    if stand.public is None:
        raise Ended(f"{stand.name} has no public address to send from")
    return "the internet"


def by_nat(journey: Journey, route: Route) -> str:
    """Leave by a public NAT gateway, in whose subnet an internet gateway must be at hand."""
    fabric, target = journey.fabric, journey.packet.target
    subnet = fabric.subnet(fabric.nats.get(route.ident, ""))
    if subnet is None or is_private(target):
        raise Ended("a public NAT gateway leads to the internet alone")
    journey.guards.enter(subnet)
    if not fabric.faces(subnet, target):
        raise Ended(f"the NAT gateway in {subnet.name} has no way to an internet gateway")
    journey.note(Via.NAT, f"in {subnet.name}, from its public address")
    return "the internet"


def by_peering(journey: Journey, route: Route, subnet: Subnet) -> str:
    """Cross to the other VPC: only what the two VPCs send each other may."""
    fabric, packet = journey.fabric, journey.packet
    peer = fabric.peers.get(route.ident)
    if peer is None or not peer.live:
        raise Ended(f"the route to {route.to} leads to a peering that is not accepted")
    near, far = fabric.vpcs[subnet.vpc], fabric.other_end(peer, subnet.vpc)
    if far is None or not near.block.holds(packet.source) or not far.block.holds(packet.target):
        raise Ended(f"a VPC peering carries only what its two VPCs send each other ({peer.name})")
    journey.note(peer.name, f"peering to {far.name}")
    return journey.deliver(far)


def by_line(journey: Journey, route: Route, subnet: Subnet) -> str:
    """Leave by a virtual private gateway: it carries only the VPC's own packets."""
    fabric, packet = journey.fabric, journey.packet
    lines = (each for each in fabric.lines if each.gateway == route.ident)
    line = next((each for each in lines if any(block.holds(packet.target) for block in each.blocks)), None)
    if line is None or not fabric.vpcs[subnet.vpc].block.holds(packet.source):
        raise Ended("a virtual private gateway carries only what its VPC and its sites send each other")
    journey.note(line.name, "over the VPN connection")
    return "the site"


# a packet that is handed on more often than this goes round in a circle


def enter(journey: Journey, hub: str, subnet: Subnet) -> Attachment:
    """Enter by the VPC's attachment, which must have an interface in the sender's zone; raises Ended."""
    attachment = journey.fabric.hubs.of_vpc(hub, subnet.vpc)
    if attachment is None:
        raise Ended(f"the VPC of {subnet.name} is not attached to the transit gateway")
    door = journey.fabric.zone_door(attachment, subnet.zone)
    if door is None:
        raise Ended(f"the attachment {attachment.name} has no subnet in {subnet.zone}")
    journey.guards.enter(door, subnet)
    return attachment


def crossing(hubs: Hubs, target: int, hub: str, came_by: Attachment) -> Iterator[tuple[Hop, Attachment]]:
    """Yield each table that a packet meets with the attachment by which it leaves; the last leads out of them all.

    Raises Ended.
    """
    for _ in range(_ROUNDS):
        hop, leaves_by = _routed(hubs, target, hub, came_by)
        yield hop, leaves_by
        if leaves_by.joins is not Joined.PEERING:
            return
        hub, came_by = next(each for each in leaves_by.hubs if each != hub), leaves_by
    raise Ended("it goes round between transit gateways")


def come_out(journey: Journey, attachment: Attachment) -> Subnet:
    """Return where it comes out: in the target's zone where the attachment has a subnet there; raises Ended."""
    fabric = journey.fabric
    target = fabric.subnet_at(journey.packet.target)
    door = fabric.zone_door(attachment, target.zone if target else "") or fabric.any_door(attachment)
    if door is None:
        raise Ended(f"the attachment {attachment.name} has no subnet")
    return door


def _routed(hubs: Hubs, target: int, hub: str, came_by: Attachment) -> tuple[Hop, Attachment]:
    table = hubs.table_of(hub, came_by.ident)
    if table is None:
        raise Ended(f"no table of the transit gateway is associated with the attachment {came_by.name}")
    route = table.route(target)
    if route is None or route.via is Via.BLACKHOLE:
        raise Ended(f"the transit gateway table {table.name} has no route to it")
    leaves_by = hubs.attachments.get(route.ident)
    if leaves_by is None or not leaves_by.live:
        raise Ended(f"the route to {route.to} leads to an attachment that is not there, or not accepted")
    at, by = f"transit gateway table {table.name}", f"{route.to} by {leaves_by.joins} {leaves_by.name}"
    return Hop(at, by), leaves_by


_UNKNOWN = "nothing knows the source: it is in no VPC, behind no gateway and on no site with a VPN connection"
_ROUNDS = 16  # gateways that lead each other on more often than this go round in a circle


def trip(fabric: Fabric, packet: Packet) -> Trip:
    """Return the way of a packet and of its answer."""
    out = walk(fabric, packet)
    if not out.delivered:
        return Trip(out, None)
    if any(hop.at.startswith(Via.NAT) for hop in out.hops):
        return Trip(out, Trace((), delivered=True, end="translated back by the NAT gateway"))
    return Trip(out, walk(fabric, packet.reply))


def walk(fabric: Fabric, packet: Packet) -> Trace:
    """Return the way of one packet; an answer passes security groups, which remember, and no network ACL."""
    journey = Journey(fabric, packet)
    try:
        end = _Walker(journey).send()
    except Ended as ended:
        return Trace(tuple(journey.hops), delivered=False, end=str(ended))
    return Trace(tuple(journey.hops), delivered=True, end=end)


class _Walker:
    """Who leads a packet on, from whatever it has come to; each step returns where it arrived in the end."""

    def __init__(self, journey: Journey) -> None:
        self._journey, self._fabric, self._packet = journey, journey.fabric, journey.packet

    def send(self) -> str:
        """Send the packet off from wherever its source is; return where it arrived."""
        subnet = self._fabric.subnet_at(self._packet.source)
        if subnet is not None:
            return self._set_out(self._fabric.stand_at(self._packet.source, subnet), subnet, "sends")
        gateway = self._fabric.forwarder(self._packet.source)
        if gateway is not None:
            return self._from_forwarder(gateway)
        return self._from_site() if is_private(self._packet.source) else self._from_internet()

    def _from_forwarder(self, stand: Stand) -> str:
        subnet = self._fabric.subnet(stand.subnet)
        if subnet is None or not stand.forwards:
            raise Ended(f"{stand.name} does not forward: its source/destination check is on")
        return self._lead_on(stand, subnet)

    def _lead_on(self, stand: Stand, subnet: Subnet) -> str:
        """Leave a gateway that forwards: by what it has itself, or into its VPC."""
        route = self._fabric.route(subnet, self._packet.target)
        if route is None or self._fabric.stands.get(route.ident) is not stand:
            return self._set_out(stand, subnet, "forwards")
        return self._cross(stand, route.across) if route.across else f"behind {stand.name} in {subnet.name}"

    def _cross(self, near: Stand, address: int) -> str:
        """Pass a tunnel that two gateways have of their own."""
        if len(self._journey.hops) > _ROUNDS:
            raise Ended("it goes round between gateways")
        far = self._fabric.bearer(address)
        subnet = self._fabric.subnet(far.subnet) if far else None
        if far is None or subnet is None or not self._fabric.is_tunnel(near, far):
            raise Ended(f"no tunnel leads on from {near.name}: the two ends do not let each other in")
        if not far.forwards:
            raise Ended(f"{far.name} does not forward: its source/destination check is on")
        self._journey.note(f"tunnel of {near.name}", f"to {far.name} in {subnet.name}")
        return self._lead_on(far, subnet)

    def _set_out(self, stand: Stand, subnet: Subnet, does: str) -> str:
        self._journey.set_out(stand, subnet, does)
        return self._by_table(subnet, stand)

    def _from_internet(self) -> str:
        stand = self._fabric.bearer(self._packet.target)
        if stand is None:
            raise Ended("the internet has no way to that address")
        subnet = self._fabric.subnet(stand.subnet)
        if subnet is None or not self._fabric.faces(subnet, self._packet.source):
            raise Ended(f"{stand.name} has a public address and no way to an internet gateway")
        self._journey.note("internet", f"to the public address of {stand.name}")
        self._journey.arrive(subnet, stand)
        return f"{stand.name} in {subnet.name}"

    def _from_site(self) -> str:
        if self._fabric.is_in_one_site(self._packet):
            return "the site, which it never leaves"
        direct = self._fabric.direct_for(self._packet)
        if direct is not None:
            self._journey.note(direct.name, "by the tunnel between the two gateways")
            return "the site"
        joined = self._fabric.attachment_for(self._packet)
        if joined is not None:
            self._journey.note(joined.name, "over the VPN connection")
            return self._through_hub(joined.hubs[0], joined)
        line = self._fabric.line_for(self._packet)
        if line is not None:
            self._journey.note(line.name, "over the VPN connection")
            return self._journey.deliver(self._fabric.vpcs[line.vpc])
        return self._across()

    def _across(self) -> str:
        """Go from site to site by a virtual private gateway."""
        lines = self._fabric.lines_across(self._packet)
        if lines is None:
            known = self._fabric.knows_site_of(self._packet.source)
            raise Ended("no VPN connection of its site leads there" if known else _UNKNOWN)
        for line in lines:
            self._journey.note(line.name, "over the VPN connection")
        return "the site"

    def _by_table(self, subnet: Subnet, stand: Stand) -> str:
        """Leave a subnet by the route that its table has."""
        table, route = self._fabric.tables.get(subnet.table), self._fabric.route(subnet, self._packet.target)
        if table is None or route is None:
            raise Ended(f"the route table of {subnet.name} has no route to it")
        self._journey.note(table.name, f"{route.to} by {route.via}")
        if route.via is Via.LOCAL:
            return self._journey.deliver(self._fabric.vpcs[subnet.vpc], subnet)
        self._journey.guards.leave(subnet)
        return self._follow(route, subnet, stand)

    def _follow(self, route: Route, subnet: Subnet, stand: Stand) -> str:
        match route.via:
            case Via.INTERNET:
                return by_internet(self._journey, stand)
            case Via.NAT:
                return by_nat(self._journey, route)
            case Via.INTERFACE:
                return self._by_interface(route, subnet)
            case Via.PEERING:
                return by_peering(self._journey, route, subnet)
            case Via.TRANSIT:
                return self._through_hub(route.ident, enter(self._journey, route.ident, subnet))
            case Via.VPN:
                return by_line(self._journey, route, subnet)
        raise Ended(f"the route to {route.to} leads nowhere")

    def _by_interface(self, route: Route, came_from: Subnet) -> str:
        """Hand the packet to an interface that forwards to what lies behind it."""
        stand = self._fabric.stands.get(route.ident)
        subnet = self._fabric.subnet(stand.subnet) if stand else None
        if stand is None or subnet is None:
            raise Ended(f"the route to {route.to} leads to an interface that is not there")
        if not stand.forwards:
            raise Ended(f"{stand.name} does not forward: its source/destination check is on")
        self._journey.arrive(subnet, stand, came_from)
        if route.across:
            return self._cross(stand, route.across)
        if self._fabric.subnet_at(self._packet.target) is not None:
            raise Ended(f"nothing leads on from {stand.name} to another VPC")
        return f"behind {stand.name} in {subnet.name}"

    def _through_hub(self, hub: str, came_by: Attachment) -> str:
        """Route from attachment to attachment, over as many transit gateways as it takes."""
        leaves_by = came_by
        for hop, by in crossing(self._fabric.hubs, self._packet.target, hub, came_by):
            self._journey.hops.append(hop)
            leaves_by = by
        if leaves_by.joins is Joined.VPN:
            return "the site"
        return self._by_table(come_out(self._journey, leaves_by), Stand(leaves_by.name, frozenset()))
