"""A site's gateway where AWS could not be asked: of its tunnels to AWS it keeps those that it has, as they lie there.

The files hold words in the place of what is not known: an address that nobody dials, and a key that is none. The
gateway puts in what it has (`vpn.keeper.kept`).
"""

from collections.abc import Container
from dataclasses import replace
from ipaddress import IPv4Address

from bedplate.plan.fleet import FleetPlan, SitePlan, TunnelPlan
from vpn.sites.aws import AwsEnd, site_gateway
from vpn.sites.engine import Engine
from vpn.sites.gateway import Gateway
from vpn.sites.inside import number_of
from vpn.sites.proof import Kept
from vpn.sites.tunnel import Tunnel

# Of "this network" (RFC 1122), and no address that any of the files has for something else.
_NOWHERE = IPv4Address("0.1.0.0")


def keeping_gateway(
    plan: FleetPlan, site: SitePlan, direct: tuple[Tunnel, ...], engine: Engine, held: Container[str]
) -> Gateway:
    """Return a site's gateway with what it holds of its tunnels to AWS, by their names, and its direct ones."""
    own = {(each.region, each.number): each for each in plan.tunnels if each.site == site.name}
    ends = {(site.name, region): (_end(own[region, 1]), _end(own[region, 2])) for region, _ in own}
    stays = tuple(each for each in own.values() if each.name in held)
    return site_gateway(replace(plan, tunnels=stays), site, ends, engine, direct)


def _end(tunnel: TunnelPlan) -> AwsEnd:
    return AwsEnd(_NOWHERE + number_of(tunnel.inside), Kept(f"kept:{tunnel.name}"))
