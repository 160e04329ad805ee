"""The topic that a region's alarms ring, its key, and who is told."""

import pulumi
from pulumi_aws.sns.topic import Topic, TopicArgs
from pulumi_aws.sns.topic_subscription import TopicSubscription, TopicSubscriptionArgs

from bedplate.plan.fleet import FleetPlan
from stacks.arn import arn
from stacks.key import FleetKey
from stacks.options import inside
from stacks.policy import Conditions, Statement, policy
from stacks.tags import named

_RINGER = {"Service": ("cloudwatch.amazonaws.com",)}


class AlarmTopic(pulumi.ComponentResource):
    """An encrypted topic that CloudWatch alone may publish to, for alarms of this account."""

    arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, region: str, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-alarms"
        super().__init__("bedplate:stacks:AlarmTopic", name, None, opts)
        key = FleetKey(plan, "alarms", pulumi.ResourceOptions(parent=self), users=(_encrypting(plan),))
        args = TopicArgs(
            name=name,
            kms_master_key_id=key.arn,
            policy=policy(*_publishing(plan, arn(plan, "sns", region, name))),
            tags=named(name),
        )
        self.arn = Topic(name, args, inside(self)).arn
        if plan.alarms:
            told = TopicSubscriptionArgs(topic=self.arn, protocol="email", endpoint=plan.alarms)
            TopicSubscription(name, told, inside(self))
        self.register_outputs({"arn": self.arn})


def _ours(plan: FleetPlan) -> Conditions:
    """Return the condition that keeps CloudWatch from ringing here for another account."""
    return {"StringEquals": {"aws:SourceAccount": (plan.account,)}}


def _encrypting(plan: FleetPlan) -> Statement:
    """Return what CloudWatch needs of the key: AWS's own key of SNS cannot be opened to it."""
    return Statement(
        sid="RingEncrypted",
        principals=_RINGER,
        actions=("kms:Decrypt", "kms:GenerateDataKey*"),
        resources=("*",),
        conditions=_ours(plan),
    )


def _publishing(plan: FleetPlan, topic: str) -> tuple[Statement, Statement]:
    ring = Statement(
        sid="Ring",
        principals=_RINGER,
        actions=("sns:Publish",),
        resources=(topic,),
        conditions=_ours(plan),
    )
    clear = Statement(
        sid="RefuseClearText",
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=("sns:Publish",),
        resources=(topic,),
        conditions={"Bool": {"aws:SecureTransport": ("false",)}},
    )
    return ring, clear
