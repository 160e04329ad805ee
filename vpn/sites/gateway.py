"""Gateways with their tunnels as values (ends, proofs, routes, timing), from the plan and from what AWS chose."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.checks.sites import AWS_ASN
from bedplate.errors import BedplateError, PartialError
from bedplate.plan.fleet import FleetPlan, SitePlan, SiteTunnelPlan, TunnelPlan
from bedplate.plan.links import (
    RegionPeer,
    has_transit,
    networks_accepted,
    networks_of_place,
    region_gateway_of,
    region_peers,
    remote_networks,
    transit_asn,
)
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, SITE_GATEWAY_HOST
from bedplate.spec.sites import Dials
from bedplate.tunnels import SHORTEST_KEY, TUNNEL_MTU


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
    `ping_address` is an address at the far end that is pinged, so that an idle tunnel shows whether it works.
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
    ping_address: IPv4Address | None = None

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
    """A gateway: `blocks` are behind it, `remote_blocks` are behind other gateways.

    `address` is its LAN address, the source of packets that it sends; None if the kernel chooses the source.
    """

    name: str
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    remote_blocks: tuple[IPv4Network, ...]
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


@dataclass(frozen=True, slots=True)
class AwsEnd:
    """AWS's end of one tunnel: its public address and the shared key."""

    outside: IPv4Address
    key: SharedKey = field(repr=False)


# The first and second tunnel of each connection, by site and region.
AwsEnds = Mapping[tuple[str, str], tuple[AwsEnd, AwsEnd]]


def site_gateway(plan: FleetPlan, site: SitePlan, ends: AwsEnds, direct: tuple[Tunnel, ...] = ()) -> Gateway:
    """Return a site's gateway; raise KeyError if `ends` lacks one of its connections."""
    return Gateway(
        name=site.gateway,
        address=site.machines[site.gateway].address,
        blocks=_blocks_behind(plan, site.name),
        remote_blocks=_remote_blocks(plan, site.name),
        tunnels=(*_aws_tunnels(plan, site, ends), *direct),
        asn=site.asn,
    )


def _aws_tunnels(plan: FleetPlan, site: SitePlan, ends: AwsEnds) -> Iterator[Tunnel]:
    for tunnel in plan.tunnels:
        if tunnel.site == site.name:
            yield _aws_tunnel(plan, site, tunnel, ends[site.name, tunnel.region][tunnel.number - 1])


def _aws_tunnel(plan: FleetPlan, site: SitePlan, tunnel: TunnelPlan, aws: AwsEnd) -> Tunnel:
    # AWS uses the first address of the block, the site the second.
    aws_inside, site_inside = (IPv4Interface((host, tunnel.inside.prefixlen)) for host in tunnel.inside.hosts())
    return Tunnel(
        name=tunnel.name,
        number=number_of(tunnel.inside),
        near=End(str(site.public), site.public, site_inside),
        far=End(str(aws.outside), aws.outside, aws_inside),
        dials=site.dials is Dials.SITE,
        proof=aws.key,
        carries=_remote_blocks(plan, site.name),
        preferred=tuple(target.block for target in networks_accepted(plan, tunnel.region, site.name)),
        asn=transit_asn(plan.region(tunnel.region)) if has_transit(plan) else AWS_ASN,
    )


def _blocks_behind(plan: FleetPlan, place: str) -> tuple[IPv4Network, ...]:
    return tuple(target.block for target in networks_of_place(plan, place))


def _remote_blocks(plan: FleetPlan, site: str) -> tuple[IPv4Network, ...]:
    return tuple(target.block for target in remote_networks(plan, site))


def direct_tunnels(plan: FleetPlan, site: SitePlan, proofs: PlaceProofs) -> Iterator[Tunnel]:
    """Yield a site's ends of its tunnels to other sites."""
    sites = {other.name: other for other in plan.sites}
    for direct in plan.site_tunnels_of(site.name):
        far = sites[direct.other(site.name)]
        yield _direct_tunnel(plan, direct, site, far, proofs(site.name, far.name))


def _direct_tunnel(plan: FleetPlan, direct: SiteTunnelPlan, near: SitePlan, far: SitePlan, proof: Proof) -> Tunnel:
    blocks = _blocks_behind(plan, far.name)
    return Tunnel(
        name=direct.name(near.name),
        number=number_of(direct.inside),
        near=End(identity_of(plan, near.name), near.public, _inside_address(direct, near)),
        far=End(identity_of(plan, far.name), far.public, _inside_address(direct, far)),
        dials=direct.dials == near.name,
        proof=proof,
        carries=blocks,
        preferred=blocks,
        asn=far.asn,
    )


def _inside_address(direct: SiteTunnelPlan, site: SitePlan) -> IPv4Interface:
    """Return a site's address inside a tunnel: the first address belongs to the site that sorts first."""
    address = list(direct.inside.hosts())[direct.sites.index(site.name)]
    return IPv4Interface((address, direct.inside.prefixlen))


# Numbers above those of tunnels to AWS. Without four host bits a block's address is still unique: none is below a /28.
_FIRST_NUMBER, _HOST_BITS = 2**28, 4


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway and the blocks behind it; the first block is its own network.

    `address` is its LAN address, None if only the machine knows it. `calls` means that it always dials, for example
    because it is behind NAT. `ping_address` is an address behind it that answers pings.
    """

    name: str
    identity: str
    public: IPv4Address
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    calls: bool = False
    ping_address: IPv4Address | None = None


# Returns the proof that the first gateway uses towards the second.
Proofs = Callable[[Peer, Peer], Proof]


def full_mesh_gateway(near: Peer, others: Iterable[Peer], proofs: Proofs) -> Gateway:
    """Return a gateway with a tunnel to each of the others."""
    fars = tuple(far for far in others if far != near)
    return Gateway(
        name=near.name,
        address=near.address,
        blocks=near.blocks,
        remote_blocks=tuple(block for far in fars for block in far.blocks),
        tunnels=tuple(_peer_tunnel(near, far, proofs(near, far)) for far in fars),
    )


def dials(near: Peer, far: Peer) -> bool:
    """Return whether the near gateway dials: one that always dials does, else the one whose name sorts first.

    Raise ValueError for the same identity or name: the ends could not be distinguished.
    """
    if near.identity == far.identity or near.name == far.name:
        raise ValueError(f"{near.name} and {far.name} have the same name or IKE identity")
    return (not near.calls, near.name) < (not far.calls, far.name)


def _peer_tunnel(near: Peer, far: Peer, proof: Proof) -> Tunnel:
    return Tunnel(
        name=far.name,
        number=_FIRST_NUMBER + (int(far.blocks[0].network_address) >> _HOST_BITS),
        near=End(near.identity, near.public),
        far=End(far.identity, far.public),
        dials=dials(near, far),
        proof=proof,
        carries=far.blocks,
        ping_address=far.ping_address,
    )


def region_gateway(plan: FleetPlan, region: str, proofs: PlaceProofs) -> Gateway:
    """Return a peered region's gateway; raise PartialError if the lock lacks the address of one of the gateways."""
    near, *fars = (_region_peer(plan, peer) for peer in (region_gateway_of(plan, region), *region_peers(plan, region)))
    return full_mesh_gateway(near, fars, lambda peer, other: proofs(peer.name, other.name))


def _region_peer(plan: FleetPlan, peer: RegionPeer) -> Peer:
    if peer.public is None:
        raise PartialError(
            f"fleet.lock has no public address of the gateway in {peer.region}",
            fix="run `bedplate vpn record` after the stacks are deployed",
        )
    return Peer(
        name=peer.region,
        identity=identity_of(plan, peer.region),
        public=peer.public,
        address=None,
        blocks=peer.blocks,
        ping_address=peer.ping_address,
    )
