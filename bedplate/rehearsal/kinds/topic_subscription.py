"""Subscriptions of SNS topics."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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
_LIMITS = {
    "filterPolicyScope": Choice(("MessageAttributes", "MessageBody")),
    "protocol": Choice(tuple(_ENDPOINTS)),
}
# Inputs that SNS keeps as attributes of text.
_ATTRIBUTES = {
    "deliveryPolicy": "DeliveryPolicy",
    "filterPolicy": "FilterPolicy",
    "filterPolicyScope": "FilterPolicyScope",
    "rawMessageDelivery": "RawMessageDelivery",
    "redrivePolicy": "RedrivePolicy",
    "subscriptionRoleArn": "SubscriptionRoleArn",
}
_WAITING = {"confirmationTimeoutInMinutes": 1, "endpointAutoConfirms": False}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _create(aws: Aws, inputs: Props) -> str:
    aws.call("sns", "get_topic_attributes", TopicArn=inputs["topic"])
    given = {label: _text(inputs[key]) for key, label in _ATTRIBUTES.items() if inputs.get(key)}
    ends = {"TopicArn": inputs["topic"], "Protocol": inputs["protocol"], "Endpoint": inputs["endpoint"]}
    made = aws.call("sns", "subscribe", **ends, Attributes=given, ReturnSubscriptionArn=True)
    return str(made["SubscriptionArn"])


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for key, label in _ATTRIBUTES.items():
        if old.get(key) != new.get(key):
            value = _text(new.get(key) or ("{}" if key == "filterPolicy" else ""))
            call = {"SubscriptionArn": ident, "AttributeName": label, "AttributeValue": value}
            aws.call("sns", "set_subscription_attributes", **call)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
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


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("sns", "unsubscribe", SubscriptionArn=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    protocol, endpoint = inputs.get("protocol"), inputs.get("endpoint")
    form = _ENDPOINTS.get(protocol) if isinstance(protocol, str) else None
    if form and is_known(endpoint) and not re.fullmatch(form, str(endpoint)):
        yield Complaint("endpoint", f"is no endpoint of protocol {protocol}")


TOPIC_SUBSCRIPTION = Kind(
    token="aws:sns/topicSubscription:TopicSubscription",
    inputs=updates(*_ATTRIBUTES, *_WAITING) | replaces("endpoint", "protocol", "topic"),
    defaults={**_WAITING, "rawMessageDelivery": False},
    computed=frozenset({"filterPolicyScope"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="nobody is asked to confirm: a subscription by mail stays pending",
)
