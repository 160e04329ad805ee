"""The SNS topic of alarms with its KMS key, alarms on missing instances and failed copies, and the account's budget."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.budgets._inputs import BudgetNotificationArgs
from pulumi_aws.budgets.budget import Budget, BudgetArgs
from pulumi_aws.cloudwatch._inputs import MetricAlarmMetricQueryArgs, MetricAlarmMetricQueryMetricArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
from pulumi_aws.sns.topic import Topic, TopicArgs
from pulumi_aws.sns.topic_subscription import TopicSubscription, TopicSubscriptionArgs

from bedplate.permissions import Statement, arn, gate_namespace, policy
from bedplate.plan.fleet import FleetPlan
from stacks.identity.policy import CLEAR_TEXT, FleetKey, deny_everyone, same_account
from stacks.options import child_options, name_tag

_CLOUDWATCH = {"Service": ("cloudwatch.amazonaws.com",)}


class AlarmTopic(pulumi.ComponentResource):
    """An encrypted topic that only CloudWatch may publish to, for alarms of this account."""

    arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, region: str, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-alarms"
        super().__init__("bedplate:stacks:AlarmTopic", name, None, opts)
        key = FleetKey(plan, "alarms", pulumi.ResourceOptions(parent=self), users=(_allow_key_use(plan),))
        args = TopicArgs(
            name=name,
            kms_master_key_id=key.arn,
            policy=policy(*_topic_statements(plan, arn(plan, "sns", region, name))),
            tags=name_tag(name),
        )
        self.arn = Topic(name, args, child_options(self)).arn
        if plan.alarms:
            subscription = TopicSubscriptionArgs(topic=self.arn, protocol="email", endpoint=plan.alarms.email)
            TopicSubscription(name, subscription, child_options(self))
        self.register_outputs({"arn": self.arn})


def _allow_key_use(plan: FleetPlan) -> Statement:
    """Allow CloudWatch to use the key; the AWS managed key of SNS does not allow that."""
    return Statement(
        sid="RingEncrypted",
        principals=_CLOUDWATCH,
        actions=("kms:Decrypt", "kms:GenerateDataKey*"),
        resources=("*",),
        conditions=same_account(plan),
    )


def _topic_statements(plan: FleetPlan, topic: str) -> tuple[Statement, Statement]:
    publish = Statement(
        sid="Ring",
        principals=_CLOUDWATCH,
        actions=("sns:Publish",),
        resources=(topic,),
        conditions=same_account(plan),
    )
    return publish, deny_everyone("RefuseClearText", ("sns:Publish",), (topic,), CLEAR_TEXT)


# 30 minutes within an hour: this includes an autoscaler that gives up after 15 minutes and tries again later.
_PERIOD_SECONDS, _ALARM_PERIODS, _EVALUATED_PERIODS = 300, 6, 12
# Lowest desired and highest actual number in a period: an instance that is only late triggers no alarm.
_METRICS = {"desired": ("GroupDesiredCapacity", "Minimum"), "running": ("GroupInServiceInstances", "Maximum")}


def alarm_on_missing_instances(
    name: str, group: pulumi.Output[str], topic_arn: pulumi.Output[str], parent: pulumi.Resource, price: float = 0.0
) -> None:
    """Declare an alarm for a group that lacked instances for 30 minutes of an hour; `price` of an instance an hour.

    A group whose instances do not get ready launches and pays for new ones without end.
    """
    alarm_name = f"{name}-short"
    cost = f". Each launched instance costs up to {price:.2f} USD an hour" if price else ""
    missing = MetricAlarmMetricQueryArgs(
        id="missing", expression="desired - running", label="Missing", return_data=True
    )
    args = MetricAlarmArgs(
        name=alarm_name,
        alarm_description=f"{name} has fewer running instances than desired: see its activity history{cost}",
        metric_queries=[*(_metric_query(query_id, group) for query_id in _METRICS), missing],
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        evaluation_periods=_EVALUATED_PERIODS,
        datapoints_to_alarm=_ALARM_PERIODS,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        tags=name_tag(alarm_name),
    )
    MetricAlarm(alarm_name, args, child_options(parent))


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """When a metric, `NAMESPACE:NAME`, triggers an alarm; with `reports_end` its end sends a mail too."""

    metric: str
    dimensions: Mapping[str, pulumi.Input[str]]
    statistic: str = "Sum"
    comparison: str = "GreaterThanThreshold"
    threshold: int = 0
    period: int = _PERIOD_SECONDS
    periods: int = 1
    missing_data: str = "notBreaching"
    reports_end: bool = True

    def declare(self, name: str, about: str, topic_arn: pulumi.Output[str], options: pulumi.ResourceOptions) -> None:
        """Declare the alarm."""
        namespace, _, metric = self.metric.partition(":")
        args = MetricAlarmArgs(
            name=name,
            alarm_description=about,
            namespace=namespace,
            metric_name=metric,
            dimensions=dict(self.dimensions),
            statistic=self.statistic,
            comparison_operator=self.comparison,
            threshold=self.threshold,
            period=self.period,
            evaluation_periods=self.periods,
            treat_missing_data=self.missing_data,
            alarm_actions=[topic_arn],
            ok_actions=[topic_arn] if self.reports_end else None,
            tags=name_tag(name),
        )
        MetricAlarm(name, args, options)


# A group with a broken type, image or bundle replaces its machines without end.
_HOUR_SECONDS, _GATE_FAILURES = 3600, 3
GATE_FAILURES = "GateFailures"


def alarm_on_failed_gates(
    plan: FleetPlan, group: tuple[str, str], topic_arn: pulumi.Output[str], parent: pulumi.Resource, price: float
) -> None:
    """Declare an alarm for three failed health gates within an hour, in a group given by name and region.

    Machines count a failure with its check. The text has the price of an instance an hour, and the commands that name
    the check and stop launches.
    """
    name, region = group
    dimension = f"Name=AutoScalingGroupName,Value={name}"
    checks = (
        f"aws cloudwatch list-metrics --region {region} --namespace {gate_namespace(plan)} --recently-active PT3H"
        f" --dimensions {dimension}"
    )
    stop = (
        f"aws autoscaling update-auto-scaling-group --region {region} --auto-scaling-group-name {name}"
        " --min-size 0 --desired-capacity 0"
    )
    about = (
        f"{_GATE_FAILURES} new machines of {name} failed their health gate within an hour, at up to {price:.2f} USD"
        f" an hour each. Failed checks: `{checks}`. Stop launches: `{stop}`"
    )
    rule = AlarmRule(
        f"{gate_namespace(plan)}:{GATE_FAILURES}",
        {"AutoScalingGroupName": name},
        comparison="GreaterThanOrEqualToThreshold",
        threshold=_GATE_FAILURES,
        period=_HOUR_SECONDS,
        reports_end=False,
    )
    rule.declare(f"{name}-gate", about, topic_arn, child_options(parent))


SILENT_GATEWAY = "does not serve laptops: see `bedplate vpn status`. It has no keys before `bedplate vpn up`"
SILENT_HUB = "does not watch the fleet, and nobody gets alerts: see `bedplate hub status`"


def alarm_on_silence(
    plan: FleetPlan, name: str, about: str, topic_arn: pulumi.Output[str], parent: pulumi.Resource
) -> None:
    """Declare an alarm for a machine that has not said for 15 minutes that it serves; a replacement takes less."""
    rule = AlarmRule(
        f"{gate_namespace(plan)}:Serving",
        {"AutoScalingGroupName": name},
        statistic="Maximum",
        comparison="LessThanThreshold",
        threshold=1,
        periods=3,
        missing_data="breaching",
    )
    rule.declare(f"{name}-serving", f"{name} {about}", topic_arn, child_options(parent))


def _metric_query(query_id: str, group: pulumi.Output[str]) -> MetricAlarmMetricQueryArgs:
    metric, statistic = _METRICS[query_id]
    return MetricAlarmMetricQueryArgs(
        id=query_id,
        return_data=False,
        metric=MetricAlarmMetricQueryMetricArgs(
            namespace="AWS/AutoScaling",
            metric_name=metric,
            dimensions={"AutoScalingGroupName": group},
            period=_PERIOD_SECONDS,
            stat=statistic,
        ),
    )


def alarm_on_failed_copies(
    name: str, dimensions: Mapping[str, str], topic_arn: pulumi.Output[str], parent: pulumi.Resource
) -> None:
    """Declare an alarm for objects that S3 could not replicate; it does not try them again.

    S3 publishes this metric in the region of the source bucket. Source: S3 user guide, "Using S3 Replication metrics".
    """
    about = f"{name}: S3 could not copy objects; copy them again by a batch job"
    rule = AlarmRule("AWS/S3:OperationsFailedReplication", dimensions)
    rule.declare(f"{name}-failed", about, topic_arn, child_options(parent))


# Type of amount and percentage of the limit that trigger a mail.
WARNINGS = (("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100))


class AccountBudget(pulumi.ComponentResource):
    """A monthly budget of the whole account, which includes untagged resources."""

    def __init__(self, plan: FleetPlan, limit: int, email: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:AccountBudget", plan.name, None, opts)
        args = BudgetArgs(
            name=plan.name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{limit}.0",
            limit_unit="USD",
            notifications=[_notification(amount_type, percent, email) for amount_type, percent in WARNINGS],
            tags=name_tag(plan.name),
        )
        Budget(plan.name, args, child_options(self))
        self.register_outputs({})


def _notification(amount_type: str, percent: int, email: str) -> BudgetNotificationArgs:
    return BudgetNotificationArgs(
        comparison_operator="GREATER_THAN",
        notification_type=amount_type,
        threshold=percent,
        threshold_type="PERCENTAGE",
        subscriber_email_addresses=[email],
    )
