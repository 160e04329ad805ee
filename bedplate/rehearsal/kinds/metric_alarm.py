"""CloudWatch alarms on metrics."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, together
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_STATISTICS = ("Average", "Maximum", "Minimum", "SampleCount", "Sum")
_COMPARISONS = (
    "GreaterThanOrEqualToThreshold",
    "GreaterThanThreshold",
    "GreaterThanUpperThreshold",
    "LessThanLowerOrGreaterThanUpperThreshold",
    "LessThanLowerThreshold",
    "LessThanOrEqualToThreshold",
    "LessThanThreshold",
)
_LIMITS = {
    "name": Text(1, 255),
    "alarmDescription": Text(0, 1024),
    "comparisonOperator": Choice(_COMPARISONS),
    "evaluationPeriods": Number(1, 10080),
    "statistic": Choice(_STATISTICS),
    "treatMissingData": Choice(("breaching", "ignore", "missing", "notBreaching")),
}
_UPDATED = (
    "actionsEnabled",
    "alarmActions",
    "alarmDescription",
    "comparisonOperator",
    "datapointsToAlarm",
    "dimensions",
    "evaluateLowSampleCountPercentiles",
    "evaluationPeriods",
    "extendedStatistic",
    "insufficientDataActions",
    "metricName",
    "metricQueries",
    "namespace",
    "okActions",
    "period",
    "statistic",
    "tags",
    "threshold",
    "thresholdMetricId",
    "treatMissingData",
    "unit",
)
_RENAMES = {
    "evaluateLowSampleCountPercentiles": "EvaluateLowSampleCountPercentile",
    "metricQueries": "Metrics",
    "name": "AlarmName",
}
_TAGS = Tagger(service="cloudwatch", ident="ResourceARN")


def _dimensions(given: Props | None) -> list[dict[str, str]]:
    return tag_pairs(given, ("Name", "Value"))


def _query(query: Props) -> dict[str, Any]:
    metric = query.get("metric")
    if not metric:
        return dict(query)
    what = {"namespace": metric.get("namespace"), "metricName": metric["metricName"]}
    stat = {key: metric.get(key) for key in ("period", "stat", "unit")}
    rest = {key: value for key, value in query.items() if key != "metric"}
    return {**rest, "metricStat": {"metric": {**what, "dimensions": _dimensions(metric.get("dimensions"))}, **stat}}


def _put(aws: Aws, inputs: Props) -> None:
    wanted = dict(inputs)
    if inputs.get("dimensions"):
        wanted["dimensions"] = _dimensions(inputs["dimensions"])
    if inputs.get("metricQueries"):
        wanted["metricQueries"] = [_query(query) for query in inputs["metricQueries"]]
    params = placed(aws, ("cloudwatch", "put_metric_alarm"), wanted, apart=("tags",), renames=_RENAMES)
    aws.call("cloudwatch", "put_metric_alarm", **params)


def _create(aws: Aws, inputs: Props) -> str:
    name: str = inputs["name"]
    if aws.call("cloudwatch", "describe_alarms", AlarmNames=[name])["MetricAlarms"]:
        # AWS would overwrite the alarm that is there.
        raise Refusal("ResourceConflict", f"an alarm {name} exists", key="name")
    _put(aws, inputs)
    _TAGS.retag(aws, aws.arn("cloudwatch", f"alarm:{name}"), {}, inputs)
    return name


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _put(aws, new)
    _TAGS.retag(aws, aws.arn("cloudwatch", f"alarm:{ident}"), old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    alarms = aws.call("cloudwatch", "describe_alarms", AlarmNames=[ident])["MetricAlarms"]
    if not alarms:
        raise Refusal("ResourceNotFound", f"there is no alarm {ident}")
    return {"arn": aws.arn("cloudwatch", f"alarm:{ident}"), "name": ident}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("cloudwatch", "delete_alarms", AlarmNames=[ident])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "statistic", "extendedStatistic")
    yield from together(inputs, "metricName", "metricQueries")
    if inputs.get("metricName") is None and inputs.get("metricQueries") is None:
        yield Complaint("metricName", "one of metricName and metricQueries must be given")


METRIC_ALARM = Kind(
    token="aws:cloudwatch/metricAlarm:MetricAlarm",
    inputs=updates(*_UPDATED) | replaces("name"),
    defaults={"actionsEnabled": True, "treatMissingData": "missing"},
    computed=frozenset({"evaluateLowSampleCountPercentiles"}),
    sets=frozenset({"alarmActions", "insufficientDataActions", "metricQueries", "okActions"}),
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
