"""Traces packets through the network that a graph declares.

Resources in the form of `bedplate graph` go in, a trace comes out. It follows route tables by longest prefix, transit
gateways and their peerings, VPC peerings, internet and NAT gateways, VPN connections, forwarding network interfaces and
the tunnels between them, security groups (stateful) and network ACLs (stateless). IPv4 only. A graph does not contain
the prefix list of a gateway endpoint, so traffic to S3 is traced as internet traffic.
"""

from bedplate.graph.reach.fabric import Direct, Fabric, read_fabric
from bedplate.graph.reach.filters import Packet, Prefix, prefix
from bedplate.graph.reach.walk import Hop, Trace, Trip, trip, walk

__all__ = ["Direct", "Fabric", "Hop", "Packet", "Prefix", "Trace", "Trip", "prefix", "read_fabric", "trip", "walk"]
