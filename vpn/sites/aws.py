"""Gateways of sites and regions with all their tunnels, from the plan and from addresses and keys that AWS chose."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.checks.sites import AWS_ASN
from bedplate.errors import PartialError
from bedplate.plan.fleet import FleetPlan, SitePlan, SiteTunnelPlan, TunnelPlan
from bedplate.plan.links import (
    RegionPeer,
    has_transit,
    networks_of_place,
    region_gateway_of,
    region_peers,
    remote_networks,
    transit_asn,
)
from bedplate.spec.sites import Dials
from vpn.sites.gateway import End, Gateway, PlaceProofs, Proof, SharedKey, Tunnel, identity_of, number_of


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
        elsewhere=_remote_blocks(plan, site.name),
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
        preferred=_blocks_behind(plan, tunnel.region),
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
    because it is behind NAT. `echo` is an address behind it that answers pings.
    """

    name: str
    identity: str
    public: IPv4Address
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    calls: bool = False
    echo: IPv4Address | None = None


# Returns the proof that the first gateway uses towards the second.
Proofs = Callable[[Peer, Peer], Proof]


def full_mesh_gateway(near: Peer, others: Iterable[Peer], proofs: Proofs) -> Gateway:
    """Return a gateway with a tunnel to each of the others."""
    fars = tuple(far for far in others if far != near)
    return Gateway(
        name=near.name,
        address=near.address,
        blocks=near.blocks,
        elsewhere=tuple(block for far in fars for block in far.blocks),
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
        echo=far.echo,
    )


def region_gateway(plan: FleetPlan, region: str, proofs: PlaceProofs) -> Gateway:
    """Return a peered region's gateway; raise PartialError if the lock lacks the address of one of the gateways."""
    near, *fars = (
        _region_peer(plan, joint) for joint in (region_gateway_of(plan, region), *region_peers(plan, region))
    )
    return full_mesh_gateway(near, fars, lambda one, other: proofs(one.name, other.name))


def _region_peer(plan: FleetPlan, joint: RegionPeer) -> Peer:
    if joint.public is None:
        raise PartialError(
            f"fleet.lock has no public address of the gateway in {joint.region}",
            fix="run `bedplate vpn record` after the stacks are deployed",
        )
    return Peer(
        name=joint.region,
        identity=identity_of(plan, joint.region),
        public=joint.public,
        address=None,
        blocks=joint.blocks,
        echo=joint.echo,
    )
