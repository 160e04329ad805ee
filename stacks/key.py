"""A customer-managed KMS key and the alias by which policies know it."""

import pulumi
from pulumi_aws.kms.alias import Alias, AliasArgs
from pulumi_aws.kms.key import Key, KeyArgs

from bedplate.plan.fleet import FleetPlan
from stacks.arn import root_arn
from stacks.options import kept
from stacks.policy import Statement, policy
from stacks.tags import named

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
