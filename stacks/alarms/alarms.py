"""The topic that a region's alarms ring, its key, and who is told."""

import pulumi
from pulumi_aws.budgets._inputs import BudgetNotificationArgs
from pulumi_aws.budgets.budget import Budget, BudgetArgs
from pulumi_aws.cloudwatch._inputs import MetricAlarmMetricQueryArgs, MetricAlarmMetricQueryMetricArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
from pulumi_aws.sns.topic import Topic, TopicArgs
from pulumi_aws.sns.topic_subscription import TopicSubscription, TopicSubscriptionArgs

from bedplate.plan.fleet import FleetPlan
from stacks.identity.policy import Conditions, FleetKey, Statement, arn, policy
from stacks.options import inside, named

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
            told = TopicSubscriptionArgs(topic=self.arn, protocol="email", endpoint=plan.alarms.email)
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


# Half an hour within an hour: an autoscaler that gives up after 15 minutes, waits and tries again must ring too.
_SECONDS, _SHORT, _PERIODS = 300, 6, 12
# The least that was asked and the most that was there in a period: a machine that is only late rings nothing.
_COUNTS = {"asked": ("GroupDesiredCapacity", "Minimum"), "there": ("GroupInServiceInstances", "Maximum")}


def watch_launches(
    name: str, group: pulumi.Output[str], topic_arn: pulumi.Output[str], parent: pulumi.Resource
) -> None:
    """Ring when a group was short of machines for half of an hour, once, however often it tries."""
    title = f"{name}-short"
    short = MetricAlarmMetricQueryArgs(id="short", expression="asked - there", label="Missing", return_data=True)
    args = MetricAlarmArgs(
        name=title,
        alarm_description=f"Machines asked of {name} do not come, or never report ready: its activities say why",
        metric_queries=[*(_count(which, group) for which in _COUNTS), short],
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        evaluation_periods=_PERIODS,
        datapoints_to_alarm=_SHORT,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        tags=named(title),
    )
    MetricAlarm(title, args, inside(parent))


def _count(which: str, group: pulumi.Output[str]) -> MetricAlarmMetricQueryArgs:
    metric, statistic = _COUNTS[which]
    return MetricAlarmMetricQueryArgs(
        id=which,
        return_data=False,
        metric=MetricAlarmMetricQueryMetricArgs(
            namespace="AWS/AutoScaling",
            metric_name=metric,
            dimensions={"AutoScalingGroupName": group},
            period=_SECONDS,
            stat=statistic,
        ),
    )


# When somebody is told: the kind of sum, and the share of the limit in percent.
WARNINGS = (("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100))


class Spending(pulumi.ComponentResource):
    """A monthly budget of everything in the account, for what carries no tags costs too."""

    def __init__(self, plan: FleetPlan, limit: int, email: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Spending", plan.name, None, opts)
        args = BudgetArgs(
            name=plan.name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{limit}.0",
            limit_unit="USD",
            notifications=[_warning(kind, share, email) for kind, share in WARNINGS],
            tags=named(plan.name),
        )
        Budget(plan.name, args, inside(self))
        self.register_outputs({})


def _warning(kind: str, share: int, email: str) -> BudgetNotificationArgs:
    return BudgetNotificationArgs(
        comparison_operator="GREATER_THAN",
        notification_type=kind,
        threshold=share,
        threshold_type="PERCENTAGE",
        subscriber_email_addresses=[email],
    )
