"""Tunnels that gateways of the network's own make: no graph holds one, and a graph shows who means to have one.

A route to a gateway's interface that waits for a door of IKE leads on to whoever the door is for.
"""

from collections.abc import Mapping

from bedplate.reach.packet import prefix
from bedplate.reach.resource import Resources

# Where an address is translated, as an elastic one is, IKE and ESP go to this port alone (RFC 3947, RFC 3948).
IKE = ("udp", 4500)
_ONE_ADDRESS = 32


def far_ends(resources: Resources) -> Mapping[str, int]:
    """Return the addresses for which doors of IKE are, each for one alone, by the URN of the door."""
    found = {}
    for each in resources.of("vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        if (each.text("ipProtocol"), each.values.get("fromPort")) == IKE and each.text("cidrIpv4"):
            block = prefix(each.text("cidrIpv4"))
            if block.length == _ONE_ADDRESS:
                found[each.urn] = block.first
    return found
