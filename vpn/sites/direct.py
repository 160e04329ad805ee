"""Tunnels between the gateways of two sites, by no way of AWS: from the plan, and what the two prove themselves by.

BGP speaks through them as through those to AWS: what lies behind the other site goes by its direct tunnel while that
stands, and by AWS else.
"""

from collections.abc import Iterator
from ipaddress import IPv4Interface

from bedplate.plan.beyond import behind
from bedplate.plan.fleet import DirectPlan, FleetPlan, SitePlan
from vpn.sites.identity import identity_of
from vpn.sites.inside import number_of
from vpn.sites.proof import PlaceProofs, Proof
from vpn.sites.tunnel import End, Tunnel


def direct_tunnels(plan: FleetPlan, site: SitePlan, proofs: PlaceProofs) -> Iterator[Tunnel]:
    """Yield a site's ends of its direct tunnels."""
    sites = {each.name: each for each in plan.sites}
    for direct in plan.directs_of(site.name):
        far = sites[direct.other(site.name)]
        yield _tunnel(plan, direct, site, far, proofs(site.name, far.name))


def _tunnel(plan: FleetPlan, direct: DirectPlan, near: SitePlan, far: SitePlan, proof: Proof) -> Tunnel:
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
