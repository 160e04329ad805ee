"""CloudWatch alarms on metrics."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Tagger, Text, beyond, chosen_name, tag_pairs, together
from bedplate.rehearsal.kinds.policy_document import malformed
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

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


_TOPIC_LIMITS = {
    "name": Text(1, 256, r"[a-zA-Z0-9_-]+(\.fifo)?", "letters, digits and _-"),
    "displayName": Text(0, 100),
    "tracingConfig": Choice(("Active", "PassThrough")),
}
# Inputs that SNS keeps as attributes of text.
_ATTRIBUTES = {
    "contentBasedDeduplication": "ContentBasedDeduplication",
    "deliveryPolicy": "DeliveryPolicy",
    "displayName": "DisplayName",
    "kmsMasterKeyId": "KmsMasterKeyId",
    "policy": "Policy",
    "signatureVersion": "SignatureVersion",
    "tracingConfig": "TracingConfig",
}
_TOPIC_TAGS = Tagger(service="sns", ident="ResourceArn")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic_create(aws: Aws, inputs: Props) -> str:
    _find_key(aws, inputs)
    name = chosen_name(inputs)
    arn = aws.arn("sns", name)
    if arn in [topic["TopicArn"] for topic in aws.call("sns", "list_topics")["Topics"]]:
        # AWS would hand out the topic that is there; two resources of one topic undo each other.
        raise Refusal("InvalidParameter", f"Topic already exists: {name}", key="name")
    given = {label: _text(inputs[key]) for key, label in _ATTRIBUTES.items() if inputs.get(key)}
    fifo = {"FifoTopic": "true"} if inputs.get("fifoTopic") else {}
    tags = tag_pairs(inputs.get("tags"))
    made = aws.call("sns", "create_topic", Name=name, Attributes={**given, **fifo}, Tags=tags)
    return str(made["TopicArn"])


def _find_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("kmsMasterKeyId")
    if key and not str(key).startswith("alias/aws/"):
        aws.call("kms", "describe_key", KeyId=key)


def _topic_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _find_key(aws, new)
    for key, label in _ATTRIBUTES.items():
        if old.get(key) != new.get(key):
            value = _text(new.get(key) or "")
            call = {"TopicArn": ident, "AttributeName": label, "AttributeValue": value}
            aws.call("sns", "set_topic_attributes", **call)
    _TOPIC_TAGS.retag(aws, ident, old, new)


def _topic_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("sns", "get_topic_attributes", TopicArn=ident)["Attributes"]
    return {
        "arn": ident,
        "name": ident.rpartition(":")[2],
        "owner": aws.account,
        "policy": inputs.get("policy") or found.get("Policy", ""),
        "signatureVersion": inputs.get("signatureVersion") or 0,
    }


def _topic_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("sns", "delete_topic", TopicArn=ident)


def _topic_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _TOPIC_LIMITS)
    yield from malformed(inputs)
    fifo, name = bool(inputs.get("fifoTopic")), inputs.get("name")
    if is_known(name) and str(name).endswith(".fifo") != fifo:
        yield Complaint("name", "a name ends in .fifo where fifoTopic is true, and only there")
    if inputs.get("contentBasedDeduplication") and not fifo:
        yield Complaint("contentBasedDeduplication", "can only be set for FIFO topics")


TOPIC = Kind(
    token="aws:sns/topic:Topic",
    inputs=updates(*_ATTRIBUTES, "tags") | replaces("fifoTopic", "name", "namePrefix"),
    defaults={"contentBasedDeduplication": False, "fifoTopic": False},
    computed=frozenset({"name", "namePrefix", "policy", "signatureVersion", "tracingConfig"}),
    naming=Naming(longest=256),
    create=_topic_create,
    read=_topic_read,
    update=_topic_update,
    delete=_topic_delete,
    complaints=_topic_complaints,
    note="moto keeps no version of signatures and no tracing",
)


# Protocol -> what an endpoint of it looks like: SNS API reference, Subscribe, 2026-07.
_ENDPOINTS = {
    "application": r"arn:aws:sns:.+",
    "email": r"[^@\s]+@[^@\s]+",
    "email-json": r"[^@\s]+@[^@\s]+",
    "firehose": r"arn:aws:firehose:.+",
    "http": r"http://\S+",
    "https": r"https://\S+",
    "lambda": r"arn:aws:lambda:.+",
    "sms": r"\+?[0-9]{4,15}",
    "sqs": r"arn:aws:sqs:.+",
}
# Somebody at the far end has to say yes before the first message.
_CONFIRMED = frozenset({"email", "email-json", "http", "https"})
_TOPIC_SUBSCRIPTION_LIMITS = {
    "filterPolicyScope": Choice(("MessageAttributes", "MessageBody")),
    "protocol": Choice(tuple(_ENDPOINTS)),
}
# Inputs that SNS keeps as attributes of text.
_TOPIC_SUBSCRIPTION_ATTRIBUTES = {
    "deliveryPolicy": "DeliveryPolicy",
    "filterPolicy": "FilterPolicy",
    "filterPolicyScope": "FilterPolicyScope",
    "rawMessageDelivery": "RawMessageDelivery",
    "redrivePolicy": "RedrivePolicy",
    "subscriptionRoleArn": "SubscriptionRoleArn",
}
_WAITING = {"confirmationTimeoutInMinutes": 1, "endpointAutoConfirms": False}


def _topic_subscription_create(aws: Aws, inputs: Props) -> str:
    aws.call("sns", "get_topic_attributes", TopicArn=inputs["topic"])
    given = {label: _text(inputs[key]) for key, label in _TOPIC_SUBSCRIPTION_ATTRIBUTES.items() if inputs.get(key)}
    ends = {"TopicArn": inputs["topic"], "Protocol": inputs["protocol"], "Endpoint": inputs["endpoint"]}
    made = aws.call("sns", "subscribe", **ends, Attributes=given, ReturnSubscriptionArn=True)
    return str(made["SubscriptionArn"])


def _topic_subscription_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for key, label in _TOPIC_SUBSCRIPTION_ATTRIBUTES.items():
        if old.get(key) != new.get(key):
            value = _text(new.get(key) or ("{}" if key == "filterPolicy" else ""))
            call = {"SubscriptionArn": ident, "AttributeName": label, "AttributeValue": value}
            aws.call("sns", "set_subscription_attributes", **call)


def _topic_subscription_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("sns", "get_subscription_attributes", SubscriptionArn=ident)
    scope = inputs.get("filterPolicyScope") or ("MessageAttributes" if inputs.get("filterPolicy") else "")
    waits = inputs["protocol"] in _CONFIRMED
    return {
        "arn": ident,
        "confirmationWasAuthenticated": not waits,
        "filterPolicyScope": scope,
        "ownerId": aws.account,
        "pendingConfirmation": waits,
    }


def _topic_subscription_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("sns", "unsubscribe", SubscriptionArn=ident)


def _topic_subscription_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _TOPIC_SUBSCRIPTION_LIMITS)
    protocol, endpoint = inputs.get("protocol"), inputs.get("endpoint")
    form = _ENDPOINTS.get(protocol) if isinstance(protocol, str) else None
    if form and is_known(endpoint) and not re.fullmatch(form, str(endpoint)):
        yield Complaint("endpoint", f"is no endpoint of protocol {protocol}")


TOPIC_SUBSCRIPTION = Kind(
    token="aws:sns/topicSubscription:TopicSubscription",
    inputs=updates(*_TOPIC_SUBSCRIPTION_ATTRIBUTES, *_WAITING) | replaces("endpoint", "protocol", "topic"),
    defaults={**_WAITING, "rawMessageDelivery": False},
    computed=frozenset({"filterPolicyScope"}),
    create=_topic_subscription_create,
    read=_topic_subscription_read,
    update=_topic_subscription_update,
    delete=_topic_subscription_delete,
    complaints=_topic_subscription_complaints,
    note="nobody is asked to confirm: a subscription by mail stays pending",
)
