"""`bedplate vpn tunnels`: what AWS and the plan say of the sites' tunnels, carried to the gateways that end them."""

from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig, ways_to
from bedplate.errors import BedplateError, InputError

if TYPE_CHECKING:
    from bedplate.account.door import Door
    from bedplate.plan import FleetPlan
    from bedplate.plan.fleet import SitePlan
    from vpn.sites.carry import Known


def tunnels(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None) -> int:
    """Bring each site's tunnels to its gateway, with AWS's keys."""
    from bedplate.account.door import check_account, open_door
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.tunnels import carried_tunnel_lines
    from vpn.sites.carry import CarriedTunnels, carry_tunnels

    plan = planned(opened(fleet))
    gateways = {f"{site.gateway}.{site.name}": site for site in plan.sites if _has_tunnels(plan, site)}
    if not gateways:
        raise InputError("the fleet has no tunnels", fix="`sites` makes some")
    door = open_door()
    check_account(door, plan.account, plan.home.name)
    asked = {name: _asked(door, plan, site) for name, site in gateways.items()}
    unknown = {name: each for name, each in asked.items() if isinstance(each, BedplateError)}
    known = {name: each for name, each in asked.items() if not isinstance(each, BedplateError)}
    nodes = [node for node in standing_nodes(plan) if node.name in known]
    with ways_to(plan, nodes, ssh_config) as way:
        done = carry_tunnels(known, way)
    carried = CarriedTunnels(done.laid, {**unknown, **done.failures})
    show(carried_tunnel_lines(carried))
    carried.check()
    return 0


def _has_tunnels(plan: "FleetPlan", site: "SitePlan") -> bool:
    return any(tunnel.site == site.name for tunnel in plan.tunnels)


def _asked(door: "Door", plan: "FleetPlan", site: "SitePlan") -> "Known | BedplateError":
    """Return what makes a site's gateway of what AWS says of it, or why AWS does not say it."""
    from functools import partial

    from bedplate.account.tunnels import TunnelKey, tunnel_keys
    from vpn.sites.aws import AwsEnd, site_gateway
    from vpn.sites.proof import SharedKey

    def end(told: TunnelKey) -> AwsEnd:
        return AwsEnd(told.address, SharedKey(told.key.encode()))

    try:
        told = tunnel_keys(door, plan, site.name)
    except BedplateError as error:
        return error
    ends = {(site.name, region): (end(first), end(second)) for region, (first, second) in told.items()}
    return partial(site_gateway, plan, site, ends)
