"""One packet's way, from where it is sent to where it arrives or ends."""

from bedplate.reach.crossing import crossing
from bedplate.reach.fabric import Fabric, Subnet, Vpc
from bedplate.reach.guards import Guards
from bedplate.reach.line import Line
from bedplate.reach.packet import Packet, is_private
from bedplate.reach.stand import Stand
from bedplate.reach.table import Route, Via
from bedplate.reach.trace import Ended, Hop, Trace, Trip
from bedplate.reach.transit import Attachment, Joined

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
    walker = _Walker(fabric, packet)
    try:
        end = walker.send()
    except Ended as ended:
        return Trace(tuple(walker.hops), delivered=False, end=str(ended))
    return Trace(tuple(walker.hops), delivered=True, end=end)


class _Walker:
    """A packet on its way, and what it has passed so far."""

    def __init__(self, fabric: Fabric, packet: Packet) -> None:
        self.hops: list[Hop] = []
        self._fabric, self._packet, self._guards = fabric, packet, Guards(fabric, packet)
        self._groups: frozenset[str] = frozenset()
        self._home = ""  # the VPC that it was sent in: only there do security groups know the sender's

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
        table = self._fabric.tables.get(subnet.table)
        route = table.route(self._packet.target) if table else None
        if route is None or self._fabric.stands.get(route.ident) is not stand:
            return self._set_out(stand, subnet, "forwards")
        return self._cross(stand, route.across) if route.across else f"behind {stand.name} in {subnet.name}"

    def _cross(self, near: Stand, address: int) -> str:
        """Pass a tunnel that two gateways have of their own."""
        if len(self.hops) > _ROUNDS:
            raise Ended("it goes round between gateways")
        far = self._fabric.bearer(address)
        subnet = self._fabric.subnet(far.subnet) if far else None
        if far is None or subnet is None or not self._fabric.is_tunnel(near, far):
            raise Ended(f"no tunnel leads on from {near.name}: the two ends do not let each other in")
        if not far.forwards:
            raise Ended(f"{far.name} does not forward: its source/destination check is on")
        self._pass(f"tunnel of {near.name}", f"to {far.name} in {subnet.name}")
        return self._lead_on(far, subnet)

    def _set_out(self, stand: Stand, subnet: Subnet, does: str) -> str:
        self._groups, self._home = stand.groups, subnet.vpc
        self._pass(subnet.name, f"{stand.name} {does}")
        self._guards.out_of(stand, self._home)
        return self._by_table(subnet, stand)

    def _from_internet(self) -> str:
        stand = self._fabric.bearer(self._packet.target)
        if stand is None:
            raise Ended("the internet has no way to that address")
        subnet = self._fabric.subnet(stand.subnet)
        if subnet is None or not self._faces(subnet, self._packet.source):
            raise Ended(f"{stand.name} has a public address and no way to an internet gateway")
        self._pass("internet", f"to the public address of {stand.name}")
        return self._arrive(subnet, stand)

    def _from_site(self) -> str:
        if self._fabric.is_in_one_site(self._packet):
            return "the site, which it never leaves"
        direct = self._fabric.direct_for(self._packet)
        if direct is not None:
            self._pass(direct.name, "by the tunnel between the two gateways")
            return "the site"
        joined = self._fabric.attachment_for(self._packet)
        if joined is not None:
            self._pass(joined.name, "over the VPN connection")
            return self._through_hub(joined.hubs[0], joined)
        line = self._fabric.line_for(self._packet)
        if line is not None:
            self._pass(line.name, "over the VPN connection")
            return self._deliver(self._fabric.vpcs[line.vpc])
        return self._across()

    def _across(self) -> str:
        """Go from site to site by a virtual private gateway."""
        lines = self._fabric.lines_across(self._packet)
        if lines is None:
            known = self._fabric.knows_site_of(self._packet.source)
            raise Ended("no VPN connection of its site leads there" if known else _UNKNOWN)
        for line in lines:
            self._pass(line.name, "over the VPN connection")
        return "the site"

    def _by_table(self, subnet: Subnet, stand: Stand) -> str:
        """Leave a subnet by the route that its table has."""
        table = self._fabric.tables.get(subnet.table)
        route = table.route(self._packet.target) if table else None
        if table is None or route is None:
            raise Ended(f"the route table of {subnet.name} has no route to it")
        self._pass(table.name, f"{route.to} by {route.via}")
        if route.via is Via.LOCAL:
            return self._deliver(self._fabric.vpcs[subnet.vpc], subnet)
        self._guards.leave(subnet)
        return self._follow(route, subnet, stand)

    def _follow(self, route: Route, subnet: Subnet, stand: Stand) -> str:
        match route.via:
            case Via.INTERNET:
                return self._out_by_internet(stand)
            case Via.NAT:
                return self._out_by_nat(route)
            case Via.INTERFACE:
                return self._by_interface(route, subnet)
            case Via.PEERING:
                return self._by_peering(route, subnet)
            case Via.TRANSIT:
                return self._into_hub(route.ident, subnet)
            case Via.VPN:
                return self._by_line(route, subnet)
        raise Ended(f"the route to {route.to} leads nowhere")

    def _out_by_internet(self, stand: Stand) -> str:
        if is_private(self._packet.target):
            raise Ended("the internet has no way to a private address")
        if stand.address not in (None, self._packet.source):
            raise Ended(f"an internet gateway knows the address of {stand.name} itself, none behind it")
        if stand.public is None:
            raise Ended(f"{stand.name} has no public address to send from")
        return "the internet"

    def _out_by_nat(self, route: Route) -> str:
        subnet = self._fabric.subnet(self._fabric.nats.get(route.ident, ""))
        if subnet is None or is_private(self._packet.target):
            raise Ended("a public NAT gateway leads to the internet alone")
        self._guards.enter(subnet)
        if not self._faces(subnet, self._packet.target):
            raise Ended(f"the NAT gateway in {subnet.name} has no way to an internet gateway")
        self._pass(Via.NAT, f"in {subnet.name}, from its public address")
        return "the internet"

    def _faces(self, subnet: Subnet, address: int) -> bool:
        table = self._fabric.tables.get(subnet.table)
        route = table.route(address) if table else None
        return route is not None and route.via is Via.INTERNET

    def _by_interface(self, route: Route, came_from: Subnet) -> str:
        """Hand the packet to an interface that forwards to what lies behind it."""
        stand = self._fabric.stands.get(route.ident)
        subnet = self._fabric.subnet(stand.subnet) if stand else None
        if stand is None or subnet is None:
            raise Ended(f"the route to {route.to} leads to an interface that is not there")
        if not stand.forwards:
            raise Ended(f"{stand.name} does not forward: its source/destination check is on")
        behind = self._arrive(subnet, stand, came_from, behind=True)
        if route.across:
            return self._cross(stand, route.across)
        if self._fabric.subnet_at(self._packet.target) is not None:
            raise Ended(f"nothing leads on from {stand.name} to another VPC")
        return behind

    def _by_peering(self, route: Route, subnet: Subnet) -> str:
        """Cross to the other VPC: only what the two VPCs send each other may."""
        peer = self._fabric.peers.get(route.ident)
        if peer is None or not peer.live:
            raise Ended(f"the route to {route.to} leads to a peering that is not accepted")
        near, far = self._fabric.vpcs[subnet.vpc], self._fabric.other_end(peer, subnet.vpc)
        if far is None or not near.block.holds(self._packet.source) or not far.block.holds(self._packet.target):
            raise Ended(f"a VPC peering carries only what its two VPCs send each other ({peer.name})")
        self._pass(peer.name, f"peering to {far.name}")
        return self._deliver(far)

    def _by_line(self, route: Route, subnet: Subnet) -> str:
        """Leave by a virtual private gateway: it carries only the VPC's own packets."""
        line = next((each for each in self._fabric.lines if each.gateway == route.ident and self._ends(each)), None)
        if line is None or not self._fabric.vpcs[subnet.vpc].block.holds(self._packet.source):
            raise Ended("a virtual private gateway carries only what its VPC and its sites send each other")
        self._pass(line.name, "over the VPN connection")
        return "the site"

    def _ends(self, line: Line) -> bool:
        return any(block.holds(self._packet.target) for block in line.blocks)

    def _into_hub(self, hub: str, subnet: Subnet) -> str:
        """Enter a transit gateway by the VPC's attachment, which must have an interface in the sender's zone."""
        attachment = self._fabric.hubs.of_vpc(hub, subnet.vpc)
        if attachment is None:
            raise Ended(f"the VPC of {subnet.name} is not attached to the transit gateway")
        door = self._fabric.zone_door(attachment, subnet.zone)
        if door is None:
            raise Ended(f"the attachment {attachment.name} has no subnet in {subnet.zone}")
        self._guards.enter(door, subnet)
        return self._through_hub(hub, attachment)

    def _through_hub(self, hub: str, came_by: Attachment) -> str:
        """Route from attachment to attachment, over as many transit gateways as it takes."""
        leaves_by = came_by
        for hop, by in crossing(self._fabric.hubs, self._packet.target, hub, came_by):
            self.hops.append(hop)
            leaves_by = by
        return "the site" if leaves_by.joins is Joined.VPN else self._out_of_hub(leaves_by)

    def _out_of_hub(self, attachment: Attachment) -> str:
        """Come out of a transit gateway into a VPC, in the target's zone where the attachment has a subnet there."""
        target = self._fabric.subnet_at(self._packet.target)
        door = self._fabric.zone_door(attachment, target.zone if target else "") or self._fabric.any_door(attachment)
        if door is None:
            raise Ended(f"the attachment {attachment.name} has no subnet")
        return self._by_table(door, Stand(attachment.name, frozenset()))

    def _deliver(self, vpc: Vpc, came_from: Subnet | None = None) -> str:
        """Hand the packet to whatever stands at its target within a VPC."""
        subnet = self._fabric.subnet_at(self._packet.target)
        if subnet is None or subnet.vpc != vpc.ident:
            raise Ended(f"no subnet of {vpc.name} holds the target")
        return self._arrive(subnet, self._fabric.stand_at(self._packet.target, subnet), came_from)

    def _arrive(self, subnet: Subnet, stand: Stand, came_from: Subnet | None = None, *, behind: bool = False) -> str:
        if came_from is not None and came_from.ident != subnet.ident:
            self._guards.leave(came_from)
        self._guards.enter(subnet, came_from)
        known = self._groups if subnet.vpc == self._home else frozenset()
        self._guards.into(stand, subnet, known)
        return f"behind {stand.name} in {subnet.name}" if behind else f"{stand.name} in {subnet.name}"

    def _pass(self, at: str, by: str) -> None:
        self.hops.append(Hop(at, by))
