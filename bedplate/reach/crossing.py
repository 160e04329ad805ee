"""The way of a packet into transit gateways, from one to the next by the table for where it came from, and out."""

from collections.abc import Iterator

from bedplate.reach.fabric import Subnet
from bedplate.reach.journey import Journey
from bedplate.reach.table import Via
from bedplate.reach.trace import Ended, Hop
from bedplate.reach.transit import Attachment, Hubs, Joined

_ROUNDS = 16  # a packet that is handed on more often than this goes round in a circle


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
