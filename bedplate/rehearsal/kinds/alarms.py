"""CloudWatch metric alarms, SNS topics and their subscriptions."""

from functools import partial
from typing import Any

from bedplate.rehearsal.kind import Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, call_with, deletes, existing, renamed
from bedplate.rehearsal.kinds.iam import check_policy
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Number,
    Tagger,
    Text,
    check_either,
    check_exclusive,
    checks,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

# --- Metric alarms

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
    "alarmActions",
    "alarmDescription",
    "comparisonOperator",
    "datapointsToAlarm",
    "dimensions",
    "evaluationPeriods",
    "metricName",
    "metricQueries",
    "namespace",
    "okActions",
    "period",
    "statistic",
    "tags",
    "threshold",
    "treatMissingData",
)
_RENAMES = {"metricQueries": "Metrics", "name": "AlarmName"}
_DIMENSION = ("Name", "Value")
_TAGS = Tagger(service="cloudwatch", ident="ResourceARN")


def _create_alarm(aws: Aws, inputs: Props) -> str:
    name: str = inputs["name"]
    if aws.call("cloudwatch", "describe_alarms", AlarmNames=[name])["MetricAlarms"]:
        # AWS would overwrite the existing alarm.
        raise ResourceError("ResourceConflict", f"The alarm {name} already exists", key="name")
    _update_alarm(aws, name, {}, inputs)
    return name


def _metric_query(query: Props) -> dict[str, Any]:
    metric = query.get("metric")
    if not metric:
        return dict(query)
    dimensions = tag_pairs(metric.get("dimensions"), _DIMENSION)
    target = {"namespace": metric.get("namespace"), "metricName": metric["metricName"], "dimensions": dimensions}
    stat = {key: metric.get(key) for key in ("period", "stat", "unit")}
    rest = {key: value for key, value in query.items() if key != "metric"}
    return {**rest, "metricStat": {"metric": target, **stat}}


def _read_alarm(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    alarms = aws.call("cloudwatch", "describe_alarms", AlarmNames=[ident])["MetricAlarms"]
    existing(alarms, "ResourceNotFound", f"The alarm {ident} does not exist")
    return {"arn": aws.arn("cloudwatch", f"alarm:{ident}"), "name": ident}


def _update_alarm(aws: Aws, ident: str, old: Props, new: Props) -> None:
    blocks = {
        "dimensions": tag_pairs(new.get("dimensions"), _DIMENSION) or None,
        "metricQueries": [_metric_query(query) for query in new.get("metricQueries") or []] or None,
    }
    call_with(aws, ("cloudwatch", "put_metric_alarm"), {**new, **blocks}, apart=("tags",), renames=_RENAMES)
    _TAGS.retag(aws, aws.arn("cloudwatch", f"alarm:{ident}"), old, new)


METRIC_ALARM = ResourceKind(
    token="aws:cloudwatch/metricAlarm:MetricAlarm",
    inputs=updates(*_UPDATED) | replaces("name"),
    defaults={"treatMissingData": "missing"},
    sets=frozenset({"alarmActions", "metricQueries", "okActions"}),
    naming=Naming(longest=255),
    create=_create_alarm,
    read=_read_alarm,
    update=_update_alarm,
    delete=deletes("cloudwatch", "delete_alarms", "AlarmNames"),
    complaints=checks(
        _LIMITS,
        partial(check_exclusive, first="metricName", second="metricQueries"),
        partial(check_either, first="metricName", second="metricQueries"),
    ),
)
_TOPIC_LIMITS = {"name": Text(1, 256, r"[a-zA-Z0-9_-]+", "letters, digits and _-")}
# Inputs that SNS stores as string attributes.
_TOPIC_ATTRIBUTES = aws_names("kmsMasterKeyId", "policy")
_TOPIC_TAGS = Tagger(service="sns", ident="ResourceArn")


# --- SNS topics


def _create_topic(aws: Aws, inputs: Props) -> str:
    _require_topic_key(aws, inputs)
    name = inputs["name"]
    arn = aws.arn("sns", name)
    if arn in [topic["TopicArn"] for topic in aws.call("sns", "list_topics")["Topics"]]:
        # AWS would return the existing topic. Two resources must not manage one topic.
        raise ResourceError("InvalidParameter", f"Topic already exists: {name}", key="name")
    attributes = renamed(inputs, _TOPIC_ATTRIBUTES)
    tags = tag_pairs(inputs.get("tags"))
    response = aws.call("sns", "create_topic", Name=name, Attributes=attributes, Tags=tags)
    return str(response["TopicArn"])


def _require_topic_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("kmsMasterKeyId")
    if key and not str(key).startswith("alias/aws/"):
        aws.call("kms", "describe_key", KeyId=key)


def _read_topic(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    attributes = aws.call("sns", "get_topic_attributes", TopicArn=ident)["Attributes"]
    return {
        "arn": ident,
        "name": ident.rpartition(":")[2],
        "owner": aws.account,
        "policy": inputs.get("policy") or attributes.get("Policy", ""),
    }


def _update_topic(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_topic_key(aws, new)
    for key, name in _TOPIC_ATTRIBUTES.items():
        if old.get(key) != new.get(key):
            attribute = {"AttributeName": name, "AttributeValue": new.get(key) or ""}
            aws.call("sns", "set_topic_attributes", TopicArn=ident, **attribute)
    _TOPIC_TAGS.retag(aws, ident, old, new)


TOPIC = ResourceKind(
    token="aws:sns/topic:Topic",
    inputs=updates(*_TOPIC_ATTRIBUTES, "tags") | replaces("name"),
    computed=frozenset({"policy"}),
    naming=Naming(longest=256),
    create=_create_topic,
    read=_read_topic,
    update=_update_topic,
    delete=deletes("sns", "delete_topic", "TopicArn"),
    complaints=checks(_TOPIC_LIMITS, check_policy),
)


# --- SNS subscriptions

_SUBSCRIPTION_LIMITS = {
    "protocol": Choice(("email",)),
    "endpoint": Text(3, 320, r"[^@\s]+@[^@\s]+", "an address such as ada@lab.example"),
}


def _create_subscription(aws: Aws, inputs: Props) -> str:
    aws.call("sns", "get_topic_attributes", TopicArn=inputs["topic"])
    target = {"TopicArn": inputs["topic"], "Protocol": inputs["protocol"], "Endpoint": inputs["endpoint"]}
    response = aws.call("sns", "subscribe", **target, ReturnSubscriptionArn=True)
    return str(response["SubscriptionArn"])


def _read_subscription(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("sns", "get_subscription_attributes", SubscriptionArn=ident)
    # The recipient must confirm the subscription before SNS delivers messages.
    return {
        "arn": ident,
        "confirmationWasAuthenticated": False,
        "ownerId": aws.account,
        "pendingConfirmation": True,
    }


TOPIC_SUBSCRIPTION = ResourceKind(
    token="aws:sns/topicSubscription:TopicSubscription",
    inputs=replaces("endpoint", "protocol", "topic"),
    create=_create_subscription,
    read=_read_subscription,
    delete=deletes("sns", "unsubscribe", "SubscriptionArn"),
    complaints=checks(_SUBSCRIPTION_LIMITS),
    note="subscriptions by mail only; they stay pending",
)
