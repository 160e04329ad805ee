"""What a packet must be let through by on its way: network ACLs at the edge of a subnet, security groups at a machine.

Groups remember a connection, so that its answers pass them unasked; network ACLs remember nothing.
"""

from dataclasses import dataclass

from bedplate.reach.fabric import Fabric, Subnet
from bedplate.reach.packet import Packet
from bedplate.reach.stand import Stand
from bedplate.reach.trace import Ended


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
