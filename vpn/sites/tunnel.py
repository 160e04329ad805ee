"""One tunnel, as the gateway at its near end has it."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from vpn.sites.proof import Proof

# What is left of an Ethernet frame of 1,500 bytes, whatever the tunnel adds: AES-GCM, UDP for a gateway behind
# translation, and the 8 bytes that some lines take for themselves.
MTU = 1400


@dataclass(frozen=True, slots=True)
class End:
    """One end: what it calls itself, where it is dialled, and its address inside the tunnel where it has one."""

    identity: str
    outside: IPv4Address
    inside: IPv4Interface | None = None


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A tunnel between two gateways, which takes whatever is routed into it.

    `number` is its own on this gateway and follows from addresses of the plan; devices are named after it. `carries`
    holds the blocks that may be reached through it. `asn` is the far end's where it speaks BGP; else routes are fixed.
    `echo` is spoken to by and by, where nothing else would be said through an idle tunnel.
    """

    name: str
    number: int
    near: End
    far: End
    dials: bool
    proof: Proof
    carries: tuple[IPv4Network, ...]
    preferred: tuple[IPv4Network, ...] = ()
    asn: int | None = None
    echo: IPv4Address | None = None

    @property
    def device(self) -> str:
        """The name of its XFRM interface; Linux takes 15 characters."""
        return f"ipsec{self.number}"

    @property
    def fixed_routes(self) -> tuple[IPv4Network, ...]:
        """The blocks that lead into it from the start; none where BGP tells."""
        return self.carries if self.asn is None else ()
