"""A site's gateway with its tunnels to AWS, from the plan and from what AWS made up: outside addresses and keys.

What it has of direct tunnels to other sites is told to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from bedplate.checks.site import AWS_ASN
from bedplate.plan.beyond import behind, beyond, has_transit, transit_asn
from bedplate.plan.fleet import FleetPlan, SitePlan, TunnelPlan
from bedplate.spec.site import Dials
from vpn.sites.gateway import Gateway
from vpn.sites.inside import number_of
from vpn.sites.proof import SharedKey
from vpn.sites.tunnel import End, Tunnel


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
        address=site.machines[site.gateway],
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
