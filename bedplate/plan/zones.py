"""The subnets of a region: an edge and a node subnet a zone, at places that a later zone never moves.

A region of /16 is eight parts. The first holds a /24 edge a zone and room to grow; each of the other seven is
one zone's /19 of nodes. Other sizes are the same picture, scaled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.paths import edge_path, nodes_path
from bedplate.plan.space import Space, Span, block_size, span_of

SLOTS = 7
NODES_BITS, EDGE_BITS = 3, 8  # how much longer their prefixes are than the region's
# A VPC is /16 to /28, and so is a subnet: https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html
VPC_WIDEST, SUBNET_NARROWEST = 16, 28
REGION_WIDEST, REGION_NARROWEST = VPC_WIDEST, SUBNET_NARROWEST - EDGE_BITS


@dataclass(frozen=True, slots=True)
class Slot:
    """A zone's two subnets."""

    edge: IPv4Network
    nodes: IPv4Network


def fits(region: IPv4Network) -> bool:
    """Tell whether subnets that AWS takes can be cut from a region's block."""
    return REGION_WIDEST <= region.prefixlen <= REGION_NARROWEST


def slot(region: IPv4Network, number: int) -> Slot:
    """Return the subnets of one of a region's seven places for a zone, counted from 0."""
    first = int(region.network_address)
    edge, nodes = region.prefixlen + EDGE_BITS, region.prefixlen + NODES_BITS
    return Slot(
        edge=IPv4Network((first + number * block_size(edge), edge)),
        nodes=IPv4Network((first + (number + 1) * block_size(nodes), nodes)),
    )


def nodes_space(region: IPv4Network) -> tuple[IPv4Network, ...]:
    """Return the part of a region's block that is for nodes, whatever zones it has: all but the edges' eighth."""
    edges = next(region.subnets(prefixlen_diff=NODES_BITS))
    return tuple(sorted(region.address_exclude(edges)))


def free_slots(region: IPv4Network, held: tuple[IPv4Network, ...]) -> Iterator[Slot]:
    """Yield the places that touch no subnet ever recorded in this region, lowest first."""
    space = Space(held)
    for number in range(SLOTS):
        candidate = slot(region, number)
        if _is_free(space, candidate.edge) and _is_free(space, candidate.nodes):
            yield candidate


def zone_blocks(
    name: str, region: IPv4Network, zones: tuple[str, ...], held: Mapping[str, IPv4Network]
) -> dict[str, IPv4Network] | None:
    """Return the subnets of a region's zones by path, or None when no place is left for a new one.

    `held` is what the lock knows below this region; what it knows keeps its place.
    """
    free = free_slots(region, tuple(held.values()))
    blocks: dict[str, IPv4Network] = {}
    for zone in dict.fromkeys(zones):
        edge, nodes = edge_path(name, zone), nodes_path(name, zone)
        if edge in held and nodes in held:
            blocks |= {edge: held[edge], nodes: held[nodes]}
            continue
        fresh = next(free, None)
        if fresh is None:
            return None
        blocks |= {edge: held.get(edge, fresh.edge), nodes: held.get(nodes, fresh.nodes)}
    return blocks


def _is_free(space: Space, block: IPv4Network) -> bool:
    span: Span = span_of(block)
    return space.free(span) == span.size
