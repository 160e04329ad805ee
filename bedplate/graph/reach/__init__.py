"""Where a packet gets to in a network that a graph declares, and by which way; pure, and no part of what made it.

Resources in the form of `bedplate graph` go in, a trace comes out. What is walked: route tables by longest prefix,
transit gateways and their peerings, VPC peerings, internet and NAT gateways, VPN connections, network interfaces that
forward and the tunnels that these mean to have with each other, security groups (which remember a connection) and
network ACLs (which do not). IPv4 only. A gateway endpoint's prefix list is not in a graph, so that traffic for S3 is
walked as if for the internet.
"""

from bedplate.graph.reach.fabric import Direct, Fabric, read_fabric
from bedplate.graph.reach.filters import Packet, Prefix, prefix
from bedplate.graph.reach.walk import Hop, Trace, Trip, trip, walk

__all__ = ["Direct", "Fabric", "Hop", "Packet", "Prefix", "Trace", "Trip", "prefix", "read_fabric", "trip", "walk"]
