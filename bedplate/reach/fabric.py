"""Everything of a graph that decides where a packet goes, looked up by id."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from bedplate.reach.acl import Acl
from bedplate.reach.direct import Direct
from bedplate.reach.door import Door
from bedplate.reach.line import Line, is_hub
from bedplate.reach.packet import Packet, Prefix
from bedplate.reach.stand import NOBODY, Stand
from bedplate.reach.table import Route, Table, Via
from bedplate.reach.transit import Attachment, Hubs
from bedplate.reach.tunnel import IKE


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
