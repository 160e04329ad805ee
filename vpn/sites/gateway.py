"""A gateway with its tunnels as values: ends, proofs, routes and timing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.errors import BedplateError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import TUNNEL_MTU
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, SITE_GATEWAY_HOST
from bedplate.tunnel_key import SHORTEST_KEY


@dataclass(frozen=True, slots=True)
class SharedKey:
    """A key that both ends have."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError if the key is too short."""
        if len(self.secret) < SHORTEST_KEY:
            raise ValueError(f"shared key too short: {len(self.secret)} bytes, at least {SHORTEST_KEY} required")

    @property
    def text(self) -> str:
        """The key in hexadecimal for swanctl.conf: no byte of it needs to be quoted."""
        return f"0x{self.secret.hex()}"


@dataclass(frozen=True, slots=True)
class TunnelCertificate:
    """A gateway's certificate and key, its authorities' certificates and their revocation lists, in PEM.

    An authority under a root needs the root's list too: strongSwan checks each certificate of the chain.
    """

    certificate: str
    key: str = field(repr=False)
    authorities: tuple[str, ...]
    revoked: tuple[str, ...]


Proof = SharedKey | TunnelCertificate
# Returns the proof that the first place's gateway uses towards the second's; raises BedplateError if it is unusable.
PlaceProofs = Callable[[str, str], Proof]


def proof_or_error(proof: Proof | BedplateError) -> Proof:
    """Return a proof, or raise the error."""
    if isinstance(proof, BedplateError):
        raise proof
    return proof


MTU = TUNNEL_MTU


@dataclass(frozen=True, slots=True)
class End:
    """One end of a tunnel: its IKE identity, its public address, and its address inside the tunnel for BGP."""

    identity: str
    outside: IPv4Address
    inside: IPv4Interface | None = None


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A route-based tunnel between two gateways.

    `number` is unique on this gateway and follows from addresses of the plan; devices are named after it. `carries`
    holds the blocks that may be reached through it. `asn` is the far end's if it speaks BGP; else routes are fixed.
    `echo` is an address at the far end that is pinged, so that an idle tunnel shows whether it works.
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
        """The name of its XFRM interface; Linux allows 15 characters."""
        return f"ipsec{self.number}"

    @property
    def fixed_routes(self) -> tuple[IPv4Network, ...]:
        """The blocks with a static route into the tunnel; none with BGP."""
        return self.carries if self.asn is None else ()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: `blocks` are behind it, `elsewhere` are behind other gateways.

    `address` is its LAN address, the source of packets that it sends; None if the kernel chooses the source.
    """

    name: str
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    elsewhere: tuple[IPv4Network, ...]
    tunnels: tuple[Tunnel, ...]
    asn: int | None = None


# Dead peer detection: seconds without a packet until a request is sent.
SILENCE = 5
# Retransmits after 1, 1.3 and 1.7 s, and gives up 2.2 s later. AWS answers within a second.
RETRANSMIT_FIRST, RETRANSMIT_BASE, RETRANSMITS = 1.0, 1.3, 3
# AWS ends an IKE_SA after 28,800 s and a CHILD_SA after 3,600 s
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html). strongSwan's own limits are 10% above these.
IKE_REKEY, CHILD_REKEY = 25_200, 3_000
REPLAY_WINDOW = 1024
# AWS proposes 10 s and 30 s for BGP; the shorter values of both ends are used (RFC 4271).
BGP_KEEPALIVE, BGP_HOLD, BGP_CONNECT = 4, 12, 5


@dataclass(frozen=True, slots=True)
class CheckInterval:
    """When the watch script checks a tunnel and dials it if needed: seconds after its start, and between checks."""

    first: int
    every: int


# The end that waits checks later and less often, so that both ends do not establish the tunnel at the same time.
CALLER = CheckInterval(first=1, every=4)
WAITER = CheckInterval(first=2, every=15)


def identity_of(plan: FleetPlan, place: str) -> str:
    """Return the IKE identity of the gateway of a region or site; no machine of the site has this name."""
    word = LAPTOP_GATEWAY_HOST if place in {region.name for region in plan.regions} else SITE_GATEWAY_HOST
    return f"{word}.{place}.{plan.domain}"


_INSIDE = IPv4Network("169.254.0.0/16")


def number_of(inside: IPv4Network) -> int:
    """Return the number of the tunnel with this inside block, unique on its gateway."""
    return (int(inside.network_address) - int(_INSIDE.network_address)) // inside.num_addresses
