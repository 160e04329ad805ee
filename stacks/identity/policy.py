"""IAM policy documents as values, roles of AWS services, and KMS keys."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pulumi_aws.iam.instance_profile import InstanceProfile, InstanceProfileArgs
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs
from pulumi_aws.kms.alias import Alias, AliasArgs
from pulumi_aws.kms.key import Key, KeyArgs

from bedplate.permissions import Conditions, Statement, alias_name, arn, permissions, policy
from bedplate.plan.fleet import FleetPlan
from stacks.options import child_options, name_tag, output_of, retained_options

EVERYONE = {"AWS": ("*",)}
CLEAR_TEXT: Conditions = {"Bool": {"aws:SecureTransport": ("false",)}}
"""The condition that a request is not made over TLS."""


def deny_everyone(sid: str, actions: tuple[str, ...], resources: tuple[str, ...], conditions: Conditions) -> Statement:
    """Return a statement that denies actions to all principals under conditions."""
    return Statement(
        sid=sid, effect="Deny", principals=EVERYONE, actions=actions, resources=resources, conditions=conditions
    )


@dataclass(frozen=True, slots=True)
class FleetRole:
    """A role: its name, whom its trust statement lets assume it, and its permissions."""

    name: str
    description: str
    trust: Statement
    permissions: Iterable[Statement]

    def declare(
        self, plan: FleetPlan, parent: pulumi.Resource, *, label: str = "", after: tuple[pulumi.Resource, ...] = ()
    ) -> Role:
        """Declare the role and its policy, as children of a component; `label` is their name in the stack."""
        args = RoleArgs(
            name=self.name,
            description=self.description,
            assume_role_policy=policy(self.trust),
            permissions_boundary=plan.boundary,
            tags=name_tag(self.name),
        )
        role = Role(label or self.name, args, child_options(parent, after=after))
        permissions = RolePolicyArgs(name=self.name, role=role.name, policy=policy(*self.permissions))
        RolePolicy(label or self.name, permissions, child_options(parent))
        return role


def trust_services(sid: str, *services: str, conditions: Conditions | None = None) -> Statement:
    """Return a trust statement: the AWS services may assume the role."""
    return Statement(
        sid=sid, principals={"Service": services}, actions=("sts:AssumeRole",), conditions=conditions or {}
    )


def same_account(plan: FleetPlan) -> Conditions:
    """Return the condition that limits an AWS service to resources of this account."""
    return {"StringEquals": {"aws:SourceAccount": (plan.account,)}}


_LAUNCH_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")


def _launch_roles(plan: FleetPlan) -> tuple[str, ...]:
    names = ("autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling", "spot.amazonaws.com/AWSServiceRoleForEC2Spot")
    return tuple(arn(plan, "iam", "", f"role/aws-service-role/{name}") for name in names)


def launch_statements(plan: FleetPlan, region: str) -> tuple[Statement, ...]:
    """Return the statements of a key's policy with which machines start from images that the key encrypts.

    The service-linked roles of Auto Scaling and of EC2 Spot have no policy of their own for keys. They are a condition,
    not the principal: KMS refuses a policy with a principal that does not exist yet. Sources: EC2 Auto Scaling user
    guide, "Required AWS KMS key policy for use with encrypted volumes"; EC2 user guide, "Service-linked role for EC2
    Spot Instances".
    """
    own = {"aws:PrincipalArn": _launch_roles(plan), "kms:CallerAccount": (plan.account,)}
    use = Statement(
        sid="LaunchFromImages",
        principals=EVERYONE,
        actions=_LAUNCH_ACTIONS,
        resources=("*",),
        conditions={"StringEquals": {**own, "kms:ViaService": (f"ec2.{region}.amazonaws.com",)}},
    )
    grant = Statement(
        sid="GrantToVolumes",
        principals=EVERYONE,
        actions=("kms:CreateGrant",),
        resources=("*",),
        conditions={"StringEquals": own, "Bool": {"kms:GrantIsForAWSResource": ("true",)}},
    )
    return use, grant


# The longest window of AWS to cancel a deletion: data encrypted with a deleted key is lost.
DELETION_WINDOW_DAYS = 30


class FleetKey(pulumi.ComponentResource):
    """A KMS key with yearly rotation. IAM policies control its use; `users` are statements for AWS services."""

    arn: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, use: str, opts: pulumi.ResourceOptions, *, users: tuple[Statement, ...] = ()
    ) -> None:
        name = f"{plan.name}-{use}"
        super().__init__("bedplate:stacks:FleetKey", name, None, opts)
        key = Key(
            name,
            KeyArgs(
                description=f"{use} of the fleet {plan.name}",
                enable_key_rotation=True,
                deletion_window_in_days=DELETION_WINDOW_DAYS,
                policy=policy(_delegate_to_iam(plan), *users),
                tags=name_tag(name),
            ),
            retained_options(self),
        )
        # Policies find the key by its alias. The alias is retained with the key: a new alias would hide the old key.
        Alias(name, AliasArgs(name=alias_name(plan, use), target_key_id=key.key_id), retained_options(self))
        self.arn = key.arn
        self.register_outputs({"arn": self.arn})


def _delegate_to_iam(plan: FleetPlan) -> Statement:
    """Return the statement by which the account root delegates access to the IAM policies of the account."""
    return Statement(
        sid="LeaveToIam",
        principals={"AWS": (arn(plan, "iam", "", "root"),)},
        actions=("kms:*",),
        resources=("*",),
    )


def profile_arn_of(shared: pulumi.StackReference, kind: str) -> pulumi.Output[str]:
    """Return the ARN of the instance profile of a kind of node, an output of `shared`."""
    return output_of(shared, "profile_arns", kind).apply(lambda profiles: str(profiles[kind]))


class NodeRole(pulumi.ComponentResource):
    """The role and instance profile of one kind of node."""

    role_arn: pulumi.Output[str]
    profile_arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, kind: str, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{kind}"
        super().__init__("bedplate:stacks:NodeRole", name, None, opts)
        trust, about = trust_services("BeAnInstance", "ec2.amazonaws.com"), f"{kind} nodes of the fleet {plan.name}"
        role = FleetRole(name, about, trust, permissions(plan, kind)).declare(plan, self)
        profile = InstanceProfile(
            name, InstanceProfileArgs(name=name, role=role.name, tags=name_tag(name)), child_options(self)
        )
        self.role_arn, self.profile_arn = role.arn, profile.arn
        self.register_outputs({"role_arn": self.role_arn, "profile_arn": self.profile_arn})
