"""The placement group of a pool on the fabric: its machines near one another, where AWS allows it.

Never with a capacity block, which takes none, nor with a reservation: all that a file names were made without ours.
"""

import pulumi
from pulumi_aws.ec2.placement_group import PlacementGroup, PlacementGroupArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Fabric, Market
from stacks.options import inside
from stacks.tags import named

_FREE = (Market.ON_DEMAND, Market.SPOT)


def placement_group(plan: FleetPlan, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """Declare the group of a pool that may have one, and return its name."""
    if pool.fabric is not Fabric.EFA or pool.market not in _FREE:
        return None
    name = f"{plan.name}-{pool.name}"
    args = PlacementGroupArgs(name=name, strategy="cluster", tags=named(name))
    return PlacementGroup(name, args, inside(parent)).name
