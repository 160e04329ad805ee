"""A packet on its way: what it has passed so far, who sent it, and who takes it where it comes to.

Chooses no way by itself: `walk` leads it, `exits` lets it out.
"""

from bedplate.reach.fabric import Fabric, Subnet, Vpc
from bedplate.reach.guards import Guards
from bedplate.reach.packet import Packet
from bedplate.reach.stand import Stand
from bedplate.reach.trace import Ended, Hop


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
