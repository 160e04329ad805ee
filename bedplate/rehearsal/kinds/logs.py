"""CloudWatch log groups and how long they keep what they hold."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import FLOW_LOG as NOUN
from bedplate.rehearsal.kinds.ec2 import TRANSIT_GATEWAY, described, require, retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, beyond, chosen_name, undoing
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

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


_WATCHED = {
    "eniId": "NetworkInterface",
    "subnetId": "Subnet",
    "transitGatewayId": "TransitGateway",
    "vpcId": "VPC",
}
_PLACES = {
    "iamRoleArn": "DeliverLogsPermissionArn",
    "logDestinationType": "LogDestinationType",
    "logFormat": "LogFormat",
    "maxAggregationInterval": "MaxAggregationInterval",
    "trafficType": "TrafficType",
}
_FLOW_LOG_LIMITS: dict[str, Limit] = {
    "logDestinationType": Choice(("cloud-watch-logs", "s3")),
    "trafficType": Choice(("ACCEPT", "REJECT", "ALL")),
}
_INTERVALS = (60, 600)


def _flow_log_create(aws: Aws, inputs: Props) -> str:
    watched = next(name for name in _WATCHED if inputs.get(name))
    if watched == "transitGatewayId":
        require(aws, TRANSIT_GATEWAY, inputs[watched])
    if inputs.get("iamRoleArn"):
        _require_role(aws, inputs["iamRoleArn"])
    params = {parameter: inputs[name] for name, parameter in _PLACES.items() if inputs.get(name)}
    target = {"ResourceIds": [inputs[watched]], "ResourceType": _WATCHED[watched]}
    made = aws.call("ec2", "create_flow_logs", ClientToken=str(uuid4()), **target, **params, **_destination(inputs))
    for failed in made.get("Unsuccessful", []):
        raise Refusal(failed["Error"]["Code"], failed["Error"]["Message"], key="logDestination")
    return tag(aws, made["FlowLogIds"][0], inputs)


def _require_role(aws: Aws, arn: str) -> None:
    try:
        aws.call("iam", "get_role", RoleName=arn.rpartition("/")[2])
    except Refusal:
        raise Refusal("InvalidParameter", "Unable to assume given IAM role", key="iamRoleArn") from None


def _destination(inputs: Props) -> dict[str, str]:
    """Return the destination as moto takes it: a log group goes by its name."""
    arn = inputs["logDestination"]
    if inputs["logDestinationType"] == "cloud-watch-logs":
        return {"LogGroupName": arn.partition(":log-group:")[2].removesuffix(":*")}
    return {"LogDestination": arn}


def _flow_log_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _flow_log_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {"arn": aws.arn("ec2", f"vpc-flow-log/{ident}"), "logFormat": found["LogFormat"]}


def _flow_log_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_flow_logs", FlowLogIds=[ident])


def _flow_log_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _FLOW_LOG_LIMITS)
    if sum(bool(inputs.get(name)) for name in _WATCHED) != 1:
        yield Complaint("vpcId", f"give exactly one of {', '.join(_WATCHED)}")
    if not inputs.get("logDestination"):
        yield Complaint("logDestination", "is required")
    if inputs.get("logDestinationType") == "cloud-watch-logs" and not inputs.get("iamRoleArn"):
        yield Complaint("iamRoleArn", "is required for logs in CloudWatch")
    interval = inputs.get("maxAggregationInterval")
    if interval not in _INTERVALS:
        yield Complaint("maxAggregationInterval", f"expected one of {list(_INTERVALS)}, got {interval}")
    yield from _traffic_complaints(inputs)


def _traffic_complaints(inputs: Props) -> Iterator[Complaint]:
    if inputs.get("transitGatewayId"):
        if inputs.get("maxAggregationInterval") != min(_INTERVALS):
            yield Complaint("maxAggregationInterval", "is 60 for a transit gateway")
    elif not inputs.get("trafficType"):
        yield Complaint("trafficType", "is required")


FLOW_LOG = Kind(
    token="aws:ec2/flowLog:FlowLog",
    inputs=updates("tags") | replaces(*_WATCHED, *_PLACES, "logDestination"),
    defaults={"logDestinationType": "cloud-watch-logs", "maxAggregationInterval": 600},
    computed=frozenset({"logDestination", "logFormat"}),
    create=_flow_log_create,
    read=_flow_log_read,
    update=_flow_log_update,
    delete=_flow_log_delete,
    complaints=_flow_log_complaints,
)
