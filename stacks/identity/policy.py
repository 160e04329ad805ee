"""IAM policy documents as values, roles of AWS services, and KMS keys."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pulumi
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs
from pulumi_aws.kms.alias import Alias, AliasArgs
from pulumi_aws.kms.key import Key, KeyArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import child_options, name_tag, retained_options

# Condition operator to key to values, as in {"Bool": {"aws:SecureTransport": ("false",)}}.
Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; `principals` maps a type (AWS, Service) to names, and is empty in policies of a role."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ()
    effect: Literal["Allow", "Deny"] = "Allow"
    principals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return the statement in JSON form."""
        parts: dict[str, object] = {
            "Sid": self.sid,
            "Effect": self.effect,
            "Principal": self.principals,
            "Action": self.actions,
            "Resource": self.resources,
            "Condition": self.conditions,
        }
        return {name: part for name, part in parts.items() if part}


def policy(*statements: Statement) -> str:
    """Return the JSON text of a policy."""
    document = {"Version": "2012-10-17", "Statement": [statement.document() for statement in statements]}
    return json.dumps(document, sort_keys=True)


def arn(plan: FleetPlan, service: str, region: str, resource: str) -> str:
    """Return the ARN of a resource in the fleet's account; `region` is empty for a global service."""
    return f"arn:aws:{service}:{region}:{plan.account}:{resource}"


def bucket_arn(bucket: str) -> str:
    """Return the ARN of a bucket."""
    return f"arn:aws:s3:::{bucket}"


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


def alias_name(plan: FleetPlan, use: str) -> str:
    """Return the alias of the key for a use (data, parameters), the same in every region."""
    return f"alias/{plan.name}-{use}"


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
