"""Where in the address space a kind of block is looked for.

Regions grow from the bottom of the supernet. Its last eighth is for services and laptops, and pods lie just
below it: on 10.64.0.0/10 that is 10.64.0.0/16, 10.65.0.0/16, ... then 10.112.0.0/13, 10.120.0.0/20 and
10.121.0.0/22. Each kind but tunnels falls back to the lowest free place anywhere in the supernet.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.space import Space, Span, span_of
from bedplate.plan.want import Kind

# Clear of what AWS keeps for itself: 169.254.0-5.0/30 and 169.254.169.252/30 are refused as inside blocks
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html), and 169.254.169.0/24 and 169.254.170.0/23
# hold instance metadata, DNS, time and the credentials of ECS and EKS
# (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
TUNNELS = IPv4Network("169.254.64.0/18")
# Docker's own default bridge: a route to such a block never leaves a node that runs containers.
DOCKER = IPv4Network("172.17.0.0/16")
# The default VPC of every region: legal, but in the way of whoever peers with one.
DEFAULT_VPC = IPv4Network("172.31.0.0/16")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of addresses to look in, and from which end."""

    span: Span
    from_top: bool = False

    def find(self, space: Space, prefix: int) -> IPv4Network | None:
        """Return the first free block in it, or None."""
        return (space.highest if self.from_top else space.lowest)(prefix, self.span)


def favourite(kind: Kind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return where a kind is looked for as long as there is room."""
    whole = span_of(supernet)
    eighth = whole.end - whole.size // 8
    corners = {
        Kind.PODS: Window(Span(whole.first, eighth), from_top=True),
        Kind.SERVICES: Window(Span(eighth, whole.end)),
        Kind.LAPTOPS: Window(Span(eighth + whole.size // 64, whole.end)),
    }
    corner = (corners[kind],) if kind in corners else ()
    return (*corner, *anywhere(kind, supernet))


def anywhere(kind: Kind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return all the room that a kind may have."""
    return (Window(span_of(TUNNELS if kind is Kind.TUNNEL else supernet)),)
