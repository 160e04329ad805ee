"""One packet's way, from where it is sent to where it arrives or ends."""

from bedplate.reach.crossing import come_out, crossing, enter
from bedplate.reach.exits import by_internet, by_line, by_nat, by_peering
from bedplate.reach.fabric import Fabric, Subnet
from bedplate.reach.journey import Journey
from bedplate.reach.packet import Packet, is_private
from bedplate.reach.stand import Stand
from bedplate.reach.table import Route, Via
from bedplate.reach.trace import Ended, Trace, Trip
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
