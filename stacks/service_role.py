"""A role that one AWS service takes on, for what is this account's own and no other's."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.policy import Statement, policy
from stacks.tags import named


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a service is sent for: the role's name, who takes it on, and what it may do; `sid` names the trust."""

    role: str
    description: str
    service: str
    sid: str
    permissions: Iterable[Statement]


def service_role(plan: FleetPlan, errand: Errand, parent: pulumi.Resource) -> None:
    """Declare the role of an errand and its policy, as parts of a component."""
    args = RoleArgs(
        name=errand.role,
        description=errand.description,
        assume_role_policy=policy(_trust(plan, errand)),
        permissions_boundary=plan.boundary,
        tags=named(errand.role),
    )
    role = Role(errand.role, args, inside(parent))
    allowed = RolePolicyArgs(name=errand.role, role=role.name, policy=policy(*errand.permissions))
    RolePolicy(errand.role, allowed, inside(parent))


def _trust(plan: FleetPlan, errand: Errand) -> Statement:
    """Return who may take the role on: the service, and not when another account made it act."""
    return Statement(
        sid=errand.sid,
        principals={"Service": (errand.service,)},
        actions=("sts:AssumeRole",),
        conditions={"StringEquals": {"aws:SourceAccount": (plan.account,)}},
    )
