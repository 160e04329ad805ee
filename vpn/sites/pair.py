"""Gateways of the fleet's own, joined two by two without AWS's VPN: regions whose `interconnect` is none, or sites."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from vpn.sites.gateway import Gateway
from vpn.sites.proof import Proof
from vpn.sites.tunnel import End, Tunnel

# Above the numbers of tunnels to AWS. What is left of a block's address is its own: none is smaller than a /28.
_FIRST, _HOST_BITS = 2**28, 4


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway and what lies behind it; the first block is its own network. A caller may stand behind translation.

    `address` is its own on its LAN, None where only the machine knows it. `echo` is one that answers behind it.
    """

    name: str
    identity: str
    public: IPv4Address
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    calls: bool = False
    echo: IPv4Address | None = None


# By what two gateways know each other.
Proofs = Callable[[Peer, Peer], Proof]


def joined(near: Peer, others: Iterable[Peer], proofs: Proofs) -> Gateway:
    """Return a gateway with a tunnel to each other one."""
    fars = tuple(far for far in others if far != near)
    return Gateway(
        name=near.name,
        address=near.address,
        blocks=near.blocks,
        elsewhere=tuple(block for far in fars for block in far.blocks),
        tunnels=tuple(_tunnel(near, far, proofs(near, far)) for far in fars),
    )


def opens(near: Peer, far: Peer) -> bool:
    """Tell whether the near one dials: who calls dials who does not, and among equals the one whose name is first.

    Raises ValueError for two of one identity: neither could tell the other from itself.
    """
    if near.identity == far.identity or near.name == far.name:
        raise ValueError(f"{near.name} and {far.name} call themselves the same")
    return (not near.calls, near.name) < (not far.calls, far.name)


def _tunnel(near: Peer, far: Peer, proof: Proof) -> Tunnel:
    return Tunnel(
        name=far.name,
        number=_FIRST + (int(far.blocks[0].network_address) >> _HOST_BITS),
        near=End(near.identity, near.public),
        far=End(far.identity, far.public),
        dials=opens(near, far),
        proof=proof,
        carries=far.blocks,
        echo=far.echo,
    )
