"""A site's gateway with its tunnels to AWS, from the plan and from what AWS made up: outside addresses and keys.

What it has of direct tunnels to other sites is told to it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.checks.sites import AWS_ASN
from bedplate.errors import PartError
from bedplate.plan.fleet import DirectPlan, FleetPlan, SitePlan, TunnelPlan
from bedplate.plan.links import Joint, behind, beyond, has_transit, joint_of, peers_of, transit_asn
from bedplate.spec.sites import Dials
from vpn.sites.gateway import End, Gateway, PlaceProofs, Proof, SharedKey, Tunnel, identity_of, number_of


@dataclass(frozen=True, slots=True)
class AwsEnd:
    """AWS's end of one tunnel, as AWS made it up: where it is dialled, and the key."""

    outside: IPv4Address
    key: SharedKey = field(repr=False)


# Both tunnels of each connection, first and second, by the site and the region.
AwsEnds = Mapping[tuple[str, str], tuple[AwsEnd, AwsEnd]]


def site_gateway(plan: FleetPlan, site: SitePlan, ends: AwsEnds, direct: tuple[Tunnel, ...] = ()) -> Gateway:
    """Return a site's gateway; KeyError when AWS's ends of one of its connections are not told."""
    return Gateway(
        name=site.gateway,
        address=site.machines[site.gateway].address,
        blocks=tuple(each.block for each in behind(plan, site.name)),
        elsewhere=_elsewhere(plan, site.name),
        tunnels=(*_tunnels(plan, site, ends), *direct),
        asn=site.asn,
    )


def _tunnels(plan: FleetPlan, site: SitePlan, ends: AwsEnds) -> Iterator[Tunnel]:
    for tunnel in plan.tunnels:
        if tunnel.site == site.name:
            yield _tunnel(plan, site, tunnel, ends[site.name, tunnel.region][tunnel.number - 1])


def _tunnel(plan: FleetPlan, site: SitePlan, tunnel: TunnelPlan, aws: AwsEnd) -> Tunnel:
    # AWS takes the first address of the block and leaves the second to the site.
    inside = [IPv4Interface((address, tunnel.inside.prefixlen)) for address in tunnel.inside.hosts()]
    return Tunnel(
        name=tunnel.name,
        number=number_of(tunnel.inside),
        near=End(str(site.public), site.public, inside[1]),
        far=End(str(aws.outside), aws.outside, inside[0]),
        dials=site.dials is Dials.SITE,
        proof=aws.key,
        carries=_elsewhere(plan, site.name),
        preferred=tuple(each.block for each in behind(plan, tunnel.region)),
        asn=transit_asn(plan.region(tunnel.region)) if has_transit(plan) else AWS_ASN,
    )


def _elsewhere(plan: FleetPlan, site: str) -> tuple[IPv4Network, ...]:
    return tuple(each.block for each in beyond(plan, site))


def direct_tunnels(plan: FleetPlan, site: SitePlan, proofs: PlaceProofs) -> Iterator[Tunnel]:
    """Yield a site's ends of its direct tunnels."""
    sites = {each.name: each for each in plan.sites}
    for direct in plan.directs_of(site.name):
        far = sites[direct.other(site.name)]
        yield _direct_tunnel(plan, direct, site, far, proofs(site.name, far.name))


def _direct_tunnel(plan: FleetPlan, direct: DirectPlan, near: SitePlan, far: SitePlan, proof: Proof) -> Tunnel:
    blocks = tuple(each.block for each in behind(plan, far.name))
    return Tunnel(
        name=direct.name(near.name),
        number=number_of(direct.inside),
        near=End(identity_of(plan, near.name), near.public, _inside(direct, near)),
        far=End(identity_of(plan, far.name), far.public, _inside(direct, far)),
        dials=direct.dials == near.name,
        proof=proof,
        carries=blocks,
        preferred=blocks,
        asn=far.asn,
    )


def _inside(direct: DirectPlan, site: SitePlan) -> IPv4Interface:
    """Return a site's address inside a tunnel: the first of the block is that of the first in the alphabet."""
    address = list(direct.inside.hosts())[direct.sites.index(site.name)]
    return IPv4Interface((address, direct.inside.prefixlen))


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
        tunnels=tuple(_pair_tunnel(near, far, proofs(near, far)) for far in fars),
    )


def opens(near: Peer, far: Peer) -> bool:
    """Tell whether the near one dials: who calls dials who does not, and among equals the one whose name is first.

    Raises ValueError for two of one identity: neither could tell the other from itself.
    """
    if near.identity == far.identity or near.name == far.name:
        raise ValueError(f"{near.name} and {far.name} call themselves the same")
    return (not near.calls, near.name) < (not far.calls, far.name)


def _pair_tunnel(near: Peer, far: Peer, proof: Proof) -> Tunnel:
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


def region_gateway(plan: FleetPlan, region: str, proofs: PlaceProofs) -> Gateway:
    """Return a joined region's gateway; PartError where the lock has no address of it or of another one."""
    near, *fars = (_peer(plan, each) for each in (joint_of(plan, region), *peers_of(plan, region)))

    def proof(one: Peer, other: Peer) -> Proof:
        return proofs(one.name, other.name)

    return joined(near, fars, proof)


def _peer(plan: FleetPlan, joint: Joint) -> Peer:
    if joint.public is None:
        told = f"fleet.lock does not say at which address the gateway in {joint.region} is dialled"
        raise PartError(told, fix="run `bedplate vpn record` once the fleet's stacks are up")
    return Peer(
        name=joint.region,
        identity=identity_of(plan, joint.region),
        public=joint.public,
        address=None,
        blocks=joint.blocks,
        echo=joint.echo,
    )
