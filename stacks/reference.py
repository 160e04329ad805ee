"""What one stack reads of another."""

import pulumi

from bedplate.plan.fleet import FleetPlan
from stacks.names import stack_name


def stack_of(plan: FleetPlan, part: str) -> pulumi.StackReference:
    """Return the stack of another part of the fleet, in the same organization and project.

    To be asked for once in a program: a reference is a resource, and there may be only one of a name.
    """
    return pulumi.StackReference(f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack_name(plan, part)}")
