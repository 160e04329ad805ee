"""A site's gateway with made-up ends of AWS: addresses of documentation and keys that are no secret."""

from ipaddress import IPv4Address

from bedplate.plan import FleetPlan
from bedplate.plan.fleet import TunnelPlan
from tests.support.declared import EXAMPLES, plan_of
from vpn.sites.aws import AwsEnd, AwsEnds, site_gateway
from vpn.sites.gateway import Gateway
from vpn.sites.proof import SharedKey

LAB = plan_of(EXAMPLES / "lab.yaml")
_FIRST = IPv4Address("203.0.113.10")


def ends_of(plan: FleetPlan) -> AwsEnds:
    """Return ends for every tunnel of a plan."""
    made = {
        (one.site, one.region, one.number): AwsEnd(_outside(one), SharedKey(f"key.of.{one.inside}".encode()))
        for one in plan.tunnels
    }
    return {(site, region): (made[site, region, 1], made[site, region, 2]) for site, region, _ in made}


def _outside(tunnel: TunnelPlan) -> IPv4Address:
    """Return an address that follows from the tunnel's own block, as nothing of another tunnel may change it."""
    return _FIRST + int(tunnel.inside.network_address) // 4 % 128


def cellar(plan: FleetPlan = LAB) -> Gateway:
    """Return the gateway of the larger example's site."""
    return site_gateway(plan, plan.sites[0], ends_of(plan))
