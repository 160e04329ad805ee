"""The sites of a fleet, each with tunnels to every region."""

from collections.abc import Mapping

import pulumi

from bedplate.plan.fleet import FleetPlan
from stacks.names import SHARED
from stacks.reference import output_of, stack_of
from stacks.side import Side
from stacks.site import SiteTunnels
from stacks.site_keys import SiteKeys
from stacks.vpn_end import vpn_end


def declare_sites(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare the tunnels between each site and each region, and keep their keys in the home region."""
    if not plan.sites:
        return
    ends = [vpn_end(plan, side) for side in every.values()]
    ways = [SiteTunnels(plan, site, end) for site in plan.sites for end in ends]
    key_arn = output_of(stack_of(plan, SHARED), "parameter_key_arn")
    at_home = pulumi.ResourceOptions(providers=[every[plan.home.name].provider])
    for way in ways:
        SiteKeys(plan, way, key_arn, at_home)
    pulumi.export("tunnels", {f"{way.site}/{way.region}": way.addresses for way in ways})
