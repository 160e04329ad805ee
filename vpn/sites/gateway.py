"""A gateway with all its tunnels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.errors import BedplateError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import GATEWAY, SITE_END
from bedplate.tunnel_key import SHORTEST_KEY


@dataclass(frozen=True, slots=True)
class SharedKey:
    """A key that both ends hold."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no key; ValueError."""
        if len(self.secret) < SHORTEST_KEY:
            raise ValueError(f"a shared key of fewer than {SHORTEST_KEY} bytes keeps nobody out")

    @property
    def text(self) -> str:
        """The key as strongSwan's settings take it: in hexadecimal, so that no byte of it reaches their parser."""
        return f"0x{self.secret.hex()}"


@dataclass(frozen=True, slots=True)
class Papers:
    """A gateway's certificate and its key, its authorities' certificates and revocation lists; each in PEM.

    An authority under a root needs the root's list too: each certificate of the chain is looked up.
    """

    certificate: str
    key: str = field(repr=False)
    authorities: tuple[str, ...]
    revoked: tuple[str, ...]


Proof = SharedKey | Papers
# By what the gateway of one place, named first, and that of another know each other; raises BedplateError where what
# is kept for them does not serve.
PlaceProofs = Callable[[str, str], Proof]


def given(proof: Proof | BedplateError) -> Proof:
    """Return a proof; raises why there is none."""
    if isinstance(proof, BedplateError):
        raise proof
    return proof


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


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: `blocks` lie behind it, `elsewhere` behind others.

    `address` is its own on its LAN, from which it sends what is its own; where it is None, the kernel picks one.
    """

    name: str
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    elsewhere: tuple[IPv4Network, ...]
    tunnels: tuple[Tunnel, ...]
    asn: int | None = None


# Seconds without a packet after which the peer is asked whether it is there.
SILENCE = 5
# A request is sent again after 1, 1.3, 1.7 and given up 2.2 s later. AWS answers within a second.
RETRANSMIT_FIRST, RETRANSMIT_BASE, RETRANSMITS = 1.0, 1.3, 3
# AWS gives an IKE_SA up after 28,800 s and a CHILD_SA after 3,600 s
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html). Ours end by themselves a tenth after these.
IKE_REKEY, CHILD_REKEY = 25_200, 3_000
REPLAY_WINDOW = 1024
# AWS proposes 10 s and 30 s for BGP; the shorter of the two ends' holds (RFC 4271).
BGP_KEEPALIVE, BGP_HOLD, BGP_CONNECT = 4, 12, 5


@dataclass(frozen=True, slots=True)
class Dialling:
    """When a gateway looks whether its tunnels stand and dials those that do not: seconds from a start, and between."""

    first: int
    every: int


# Who waits looks later, and less often, so that the two do not build one tunnel at once.
CALLER = Dialling(first=1, every=4)
WAITER = Dialling(first=2, every=15)


def identity_of(plan: FleetPlan, place: str) -> str:
    """Return the name of the gateway of a region or site: no machine's of a site, whatever it is called there."""
    word = GATEWAY if place in {region.name for region in plan.regions} else SITE_END
    return f"{word}.{place}.{plan.domain}"


_INSIDE = IPv4Network("169.254.0.0/16")


def number_of(inside: IPv4Network) -> int:
    """Return the number of the tunnel with a block inside: no other tunnel of the gateway has it."""
    return (int(inside.network_address) - int(_INSIDE.network_address)) // inside.num_addresses
