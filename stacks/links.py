"""The program of `<fleet>.links`: what ties the regions together."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pulumi
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Interconnect
from stacks.options import inside
from stacks.peering import Peering
from stacks.side import Side, pairs, sides

_LINKS: Mapping[Interconnect, Callable[[FleetPlan, Side, Side], object]] = MappingProxyType(
    {Interconnect.PEERING: Peering}
)


class SharedNames(pulumi.ComponentResource):
    """The home region's private zone, resolvable in the VPC of every other region."""

    def __init__(self, plan: FleetPlan, every: Mapping[str, Side], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:SharedNames", plan.name, None, opts)
        zone_id = every[plan.home.name].output("zone_id")
        for side in (side for side in every.values() if not side.region.home):
            args = ZoneAssociationArgs(zone_id=zone_id, vpc_id=side.output("vpc_id"), vpc_region=side.name)
            ZoneAssociation(f"{plan.name}-{side.name}", args, inside(self))
        self.register_outputs({})


def declare_links(plan: FleetPlan) -> None:
    """Declare what ties the regions of a fleet together."""
    every = sides(plan)
    SharedNames(plan, every, pulumi.ResourceOptions(providers=[every[plan.home.name].provider]))
    link = _LINKS.get(plan.interconnect)
    if link is not None:
        for near, far in pairs(every):
            link(plan, near, far)
    pulumi.export("regions", sorted(every))
