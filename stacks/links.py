"""The program of `<fleet>.links`: what ties the regions together."""

import pulumi
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs

from bedplate.plan.fleet import FleetPlan
from stacks.names import LINKS
from stacks.options import inside
from stacks.provider import in_region
from stacks.reference import stack_of


class SharedNames(pulumi.ComponentResource):
    """The home region's private zone, resolvable in the VPC of every other region."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:SharedNames", plan.name, None, opts)
        zone_id = stack_of(plan, plan.home.name).require_output("zone_id")
        for region in (region.name for region in plan.regions if not region.home):
            args = ZoneAssociationArgs(
                zone_id=zone_id,
                vpc_id=stack_of(plan, region).require_output("vpc_id"),
                vpc_region=region,
            )
            ZoneAssociation(f"{plan.name}-{region}", args, inside(self))
        self.register_outputs({})


def declare_links(plan: FleetPlan) -> None:
    """Declare what ties the regions of a fleet together."""
    SharedNames(plan, in_region(plan, LINKS, plan.home.name))
    pulumi.export("regions", sorted(region.name for region in plan.regions))
