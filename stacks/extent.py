"""How far a permission of the fleet's roles goes: its regions, its groups, what bears its tag."""

from bedplate.plan.fleet import FleetPlan
from stacks.arn import arn
from stacks.policy import Conditions, Statement
from stacks.tags import FLEET


def regions_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the fleet's regions, sorted."""
    return tuple(sorted(region.name for region in plan.regions))


def groups_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the ARNs of whatever Auto Scaling groups the fleet has, made before or after the policy."""
    named = f"autoScalingGroup:*:autoScalingGroupName/{plan.name}-*"
    return tuple(arn(plan, "autoscaling", region, named) for region in regions_of(plan))


def of_fleet(plan: FleetPlan) -> Conditions:
    """Return the condition that a resource bears the fleet's tag."""
    return {"StringEquals": {f"aws:ResourceTag/{FLEET}": (plan.name,)}}


def anywhere_in(plan: FleetPlan, sid: str, actions: tuple[str, ...]) -> Statement:
    """Allow actions that know no resources, within the fleet's regions."""
    return Statement(
        sid=sid,
        actions=actions,
        resources=("*",),
        conditions={"StringEquals": {"aws:RequestedRegion": regions_of(plan)}},
    )
