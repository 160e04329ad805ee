"""A role for each kind of node, and the profile that hands it to an instance."""

import pulumi
from pulumi_aws.iam.instance_profile import InstanceProfile, InstanceProfileArgs
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.permissions import permissions
from stacks.policy import Statement, policy
from stacks.reference import output_of
from stacks.tags import named

_TRUST = Statement(sid="BeAnInstance", principals={"Service": ("ec2.amazonaws.com",)}, actions=("sts:AssumeRole",))


def profile_of(shared: pulumi.StackReference, kind: str) -> pulumi.Output[str]:
    """Return the ARN of the profile of a kind of node (ssh, kubernetes, gateway), which `shared` makes."""
    return output_of(shared, "profile_arns").apply(lambda profiles: str(profiles[kind]))


class NodeRole(pulumi.ComponentResource):
    """A role that only EC2 may hand out, with what one kind of node may do and no more."""

    role_arn: pulumi.Output[str]
    profile_arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, kind: str, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{kind}"
        super().__init__("bedplate:stacks:NodeRole", name, None, opts)
        role = Role(
            name,
            RoleArgs(
                name=name,
                description=f"{kind} nodes of the fleet {plan.name}",
                assume_role_policy=policy(_TRUST),
                permissions_boundary=plan.boundary,
                tags=named(name),
            ),
            inside(self),
        )
        RolePolicy(
            name,
            RolePolicyArgs(name=name, role=role.name, policy=policy(*permissions(plan, kind))),
            inside(self),
        )
        profile = InstanceProfile(name, InstanceProfileArgs(name=name, role=role.name, tags=named(name)), inside(self))
        self.role_arn, self.profile_arn = role.arn, profile.arn
        self.register_outputs({"role_arn": self.role_arn, "profile_arn": self.profile_arn})
