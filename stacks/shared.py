"""The program of `<fleet>.shared`: who nodes are, and what they can look up. In the home region."""

import pulumi

from bedplate.plan.fleet import FleetPlan
from stacks.flow_log import FlowRole
from stacks.key import FleetKey
from stacks.names import SHARED
from stacks.parameters import FleetParameters
from stacks.permissions import kinds
from stacks.provider import in_region
from stacks.replication import ReplicationRole, copies
from stacks.role import NodeRole
from stacks.spending import Spending


def declare_shared(plan: FleetPlan) -> None:
    """Declare what all regions of a fleet share."""
    here = in_region(plan, SHARED, plan.home.name)
    roles = {kind: NodeRole(plan, kind, here) for kind in kinds(plan)}
    FlowRole(plan, here)
    if plan.budget:
        Spending(plan, *plan.budget, here)
    if copies(plan):
        ReplicationRole(plan, here)
    key = FleetKey(plan, "parameters", here)
    FleetParameters(plan, key.arn, here)
    pulumi.export("role_arns", {kind: role.role_arn for kind, role in roles.items()})
    pulumi.export("profile_arns", {kind: role.profile_arn for kind, role in roles.items()})
    pulumi.export("parameter_key_arn", key.arn)
    pulumi.export("parameter_path", f"/{plan.name}/")
