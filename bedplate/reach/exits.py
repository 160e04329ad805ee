"""Ways by which a packet leaves a VPC for a place from which nobody leads it on; each returns where it arrived.

Each raises Ended where the packet goes no further.
"""

from bedplate.reach.fabric import Subnet
from bedplate.reach.journey import Journey
from bedplate.reach.packet import is_private
from bedplate.reach.stand import Stand
from bedplate.reach.table import Route, Via
from bedplate.reach.trace import Ended


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
