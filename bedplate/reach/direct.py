"""Tunnels between sites that no cloud knows of: whoever has the plan adds them to what a graph tells."""

from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.reach.packet import Packet, Prefix


@dataclass(frozen=True, slots=True)
class Direct:
    """A tunnel between two sites, and the blocks behind each of its ends."""

    name: str
    ends: tuple[tuple[Prefix, ...], tuple[Prefix, ...]]

    def leads(self, packet: Packet) -> bool:
        """Tell whether a packet passes it, from either end to the other."""
        one, other = self.ends
        there = _holds(one, packet.source) and _holds(other, packet.target)
        return there or (_holds(other, packet.source) and _holds(one, packet.target))


def _holds(blocks: Iterable[Prefix], address: int) -> bool:
    return any(block.holds(address) for block in blocks)
