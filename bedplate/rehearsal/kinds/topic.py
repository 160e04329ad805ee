"""SNS topics."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Choice, Text, beyond
from bedplate.rehearsal.kinds.policy_document import malformed
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS = {
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
_TAGS = Tagger(service="sns", ident="ResourceArn")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _create(aws: Aws, inputs: Props) -> str:
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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _find_key(aws, new)
    for key, label in _ATTRIBUTES.items():
        if old.get(key) != new.get(key):
            value = _text(new.get(key) or "")
            call = {"TopicArn": ident, "AttributeName": label, "AttributeValue": value}
            aws.call("sns", "set_topic_attributes", **call)
    _TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("sns", "get_topic_attributes", TopicArn=ident)["Attributes"]
    return {
        "arn": ident,
        "name": ident.rpartition(":")[2],
        "owner": aws.account,
        "policy": inputs.get("policy") or found.get("Policy", ""),
        "signatureVersion": inputs.get("signatureVersion") or 0,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("sns", "delete_topic", TopicArn=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto keeps no version of signatures and no tracing",
)
