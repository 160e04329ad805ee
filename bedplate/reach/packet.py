"""Packets and blocks of addresses, as whole numbers: a walk compares them by the thousand."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

EPHEMERAL = 50_000  # the port that a client asks from: above 49152 (RFC 6335)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A block of addresses, from its first to its last."""

    first: int
    last: int
    length: int

    def holds(self, address: int) -> bool:
        """Tell whether an address lies in the block."""
        return self.first <= address <= self.last

    def __str__(self) -> str:
        return f"{IPv4Address(self.first)}/{self.length}"


@lru_cache(maxsize=4096)
def prefix(text: str) -> Prefix:
    """Return the block that a text such as 10.0.0.0/8 names; bits below the prefix count as zeros, as AWS has it."""
    block = IPv4Network(text, strict=False)
    return Prefix(int(block.network_address), int(block.broadcast_address), block.prefixlen)


PRIVATE = tuple(map(prefix, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")))


def is_private(address: int) -> bool:
    """Tell whether the internet has no way to an address."""
    return any(block.holds(address) for block in PRIVATE)


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet; `protocol` is tcp, udp or icmp, and `answers` tells that its connection was let in before."""

    source: int
    target: int
    protocol: str = "tcp"
    port: int = 22
    from_port: int = EPHEMERAL
    answers: bool = False

    @property
    def reply(self) -> "Packet":
        """The packet that answers it."""
        return Packet(self.target, self.source, self.protocol, self.from_port, self.port, answers=True)

    def __str__(self) -> str:
        flow = self.protocol if self.protocol == "icmp" else f"{self.protocol}/{self.port}"
        return f"{IPv4Address(self.source)} to {IPv4Address(self.target)} {flow}"
