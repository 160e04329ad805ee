"""The alarm of an Auto Scaling group whose launches fail: machines asked for that do not come."""

import pulumi
from pulumi_aws.cloudwatch._inputs import MetricAlarmMetricQueryArgs, MetricAlarmMetricQueryMetricArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs

from stacks.options import inside
from stacks.tags import named

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
