"""IAM policy documents as values."""

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
from stacks.options import inside, kept, named

# Condition operator to key to values, as in {"Bool": {"aws:SecureTransport": ("false",)}}.
Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; `principals` maps a kind (AWS, Service) to names, and is empty in a role's policy."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ()
    effect: Literal["Allow", "Deny"] = "Allow"
    principals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return the statement as IAM writes it."""
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
    """Return the ARN of a bucket: its name says it all."""
    return f"arn:aws:s3:::{bucket}"


def root_arn(plan: FleetPlan) -> str:
    """Return the ARN by which a resource's policy leaves the matter to the account's own IAM policies."""
    return arn(plan, "iam", "", "root")


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


# The longest that AWS offers to take a deletion back: what a key encrypted is lost with it.
DELETION_WINDOW_DAYS = 30


def alias_name(plan: FleetPlan, use: str) -> str:
    """Return the alias of the fleet's key for a use (data, parameters), the same in every region."""
    return f"alias/{plan.name}-{use}"


class FleetKey(pulumi.ComponentResource):
    """A key that is rotated each year, whose use IAM policies decide; `users` allows services, which have none."""

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
                policy=policy(_left_to_iam(plan), *users),
                tags=named(name),
            ),
            kept(self),
        )
        # Nodes find the key by its alias: were it to go while the key is kept, a new key would hide the old one.
        Alias(name, AliasArgs(name=alias_name(plan, use), target_key_id=key.key_id), kept(self))
        self.arn = key.arn
        self.register_outputs({"arn": self.arn})


def _left_to_iam(plan: FleetPlan) -> Statement:
    return Statement(
        sid="LeaveToIam",
        principals={"AWS": (root_arn(plan),)},
        actions=("kms:*",),
        resources=("*",),
    )
