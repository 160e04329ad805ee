"""The role that every node takes on, and the profile that hands it to an instance."""

import pulumi
from pulumi_aws.iam.instance_profile import InstanceProfile, InstanceProfileArgs
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.permissions import node_permissions
from stacks.policy import Statement, policy
from stacks.tags import named

_TRUST = Statement(sid="BeAnInstance", principals={"Service": ("ec2.amazonaws.com",)}, actions=("sts:AssumeRole",))


class NodeRole(pulumi.ComponentResource):
    """A role that only EC2 may hand out, with the nodes' permissions and no others."""

    role_arn: pulumi.Output[str]
    profile_arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-nodes"
        super().__init__("bedplate:stacks:NodeRole", name, None, opts)
        role = Role(
            name,
            RoleArgs(
                name=name,
                description=f"Nodes of the fleet {plan.name}",
                assume_role_policy=policy(_TRUST),
                tags=named(name),
            ),
            inside(self),
        )
        RolePolicy(
            name,
            RolePolicyArgs(name=name, role=role.name, policy=policy(*node_permissions(plan))),
            inside(self),
        )
        profile = InstanceProfile(name, InstanceProfileArgs(name=name, role=role.name, tags=named(name)), inside(self))
        self.role_arn, self.profile_arn = role.arn, profile.arn
        self.register_outputs({"role_arn": self.role_arn, "profile_arn": self.profile_arn})
