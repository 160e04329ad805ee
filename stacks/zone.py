"""The fleet's private DNS zone."""

import pulumi
from pulumi_aws.route53._inputs import ZoneVpcArgs
from pulumi_aws.route53.zone import Zone, ZoneArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.tags import named


class PrivateZone(pulumi.ComponentResource):
    """The zone of the fleet's domain, seen from the home region; `links` lets the other regions see it."""

    zone_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PrivateZone", plan.name, None, opts)
        args = ZoneArgs(
            name=plan.domain,
            comment=f"Names of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=vpc_id, vpc_region=plan.home.name)],
            tags=named(plan.name),
            # Nodes register their names by themselves. AWS deletes no zone that holds records.
            force_destroy=True,
        )
        self.zone_id = Zone(plan.name, args, inside(self, ignore=("vpcs",))).zone_id
        self.register_outputs({"zone_id": self.zone_id})
