"""CloudWatch log groups and how long they keep what they hold."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Number, Text, beyond
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

# Days that CloudWatch Logs offers, as the API's reference lists them; zero keeps for ever.
_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288)
_LIMITS = {
    "name": Text(1, 512, r"[a-zA-Z0-9_/.#-]+", "letters, digits and _/.#-"),
    "retentionInDays": Number(0, 0, besides=(*_DAYS, 3653)),
}


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs)
    key = {"kmsKeyId": inputs["kmsKeyId"]} if inputs.get("kmsKeyId") else {}
    group = {"logGroupClass": inputs["logGroupClass"]} if inputs.get("logGroupClass") else {}
    _find_key(aws, inputs)
    aws.call("logs", "create_log_group", logGroupName=name, tags=inputs.get("tags") or {}, **key, **group)
    with undoing(lambda: _delete(aws, name, {})):
        _keep(aws, name, {}, inputs)
    return name


def _find_key(aws: Aws, inputs: Props) -> None:
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])


def _keep(aws: Aws, name: str, old: Props, new: Props) -> None:
    days = new.get("retentionInDays") or 0
    if days != (old.get("retentionInDays") or 0):
        if days:
            aws.call("logs", "put_retention_policy", logGroupName=name, retentionInDays=days)
        else:
            aws.call("logs", "delete_retention_policy", logGroupName=name)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _find_key(aws, new)
    _keep(aws, ident, old, new)
    before, after = old.get("tags") or {}, new.get("tags") or {}
    arn = aws.arn("logs", f"log-group:{ident}")
    if gone := sorted(before.keys() - after.keys()):
        aws.call("logs", "untag_resource", resourceArn=arn, tagKeys=gone)
    if fresh := dict(after.items() - before.items()):
        aws.call("logs", "tag_resource", resourceArn=arn, tags=fresh)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    groups = aws.call("logs", "describe_log_groups", logGroupNamePrefix=ident)["logGroups"]
    found = [group for group in groups if group["logGroupName"] == ident]
    if not found:
        raise Refusal("ResourceNotFoundException", f"there is no log group {ident}")
    return {
        "arn": aws.arn("logs", f"log-group:{ident}"),
        "logGroupClass": found[0].get("logGroupClass", "STANDARD"),
        "name": ident,
        "retentionInDays": found[0].get("retentionInDays", 0),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if not outputs.get("skipDestroy"):
        aws.call("logs", "delete_log_group", logGroupName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)


LOG_GROUP = Kind(
    token="aws:cloudwatch/logGroup:LogGroup",
    inputs=updates("kmsKeyId", "retentionInDays", "skipDestroy", "tags")
    | replaces("logGroupClass", "name", "namePrefix"),
    defaults={"retentionInDays": 0, "skipDestroy": False},
    computed=frozenset({"logGroupClass", "name", "namePrefix"}),
    naming=Naming(longest=512),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto keeps the key that a group was made with",
)
