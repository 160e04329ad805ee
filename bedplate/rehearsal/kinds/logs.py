"""CloudWatch log groups with their retention, and flow logs of VPCs."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, deletes, existing, renamed
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, check_required, checks, rollback
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

# --- Log groups

# Retention periods in days. Source: CloudWatch Logs API reference. Zero keeps events for ever.
_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288)
_LIMITS = {
    "name": Text(1, 512, r"[a-zA-Z0-9_/.#-]+", "letters, digits and _/.#-"),
    "retentionInDays": Number(0, 0, besides=(*_DAYS, 3653)),
}


def _create_log_group(aws: Aws, inputs: Props) -> str:
    name = str(inputs["name"])
    aws.call("logs", "create_log_group", logGroupName=name, tags=inputs.get("tags") or {})
    with rollback(lambda: _delete_log_group(aws, name, {})):
        _set_retention(aws, name, {}, inputs)
    return name


def _set_retention(aws: Aws, name: str, old: Props, new: Props) -> None:
    days = new.get("retentionInDays") or 0
    if days != (old.get("retentionInDays") or 0):
        if days:
            aws.call("logs", "put_retention_policy", logGroupName=name, retentionInDays=days)
        else:
            aws.call("logs", "delete_retention_policy", logGroupName=name)


def _read_log_group(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    groups = aws.call("logs", "describe_log_groups", logGroupNamePrefix=ident)["logGroups"]
    matches = (group for group in groups if group["logGroupName"] == ident)
    group = existing(matches, "ResourceNotFoundException", f"The specified log group does not exist: {ident}")
    return {
        "arn": aws.arn("logs", f"log-group:{ident}"),
        "logGroupClass": group.get("logGroupClass", "STANDARD"),
        "name": ident,
        "retentionInDays": group.get("retentionInDays", 0),
    }


def _update_log_group(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _set_retention(aws, ident, old, new)
    before, after = old.get("tags") or {}, new.get("tags") or {}
    arn = aws.arn("logs", f"log-group:{ident}")
    if removed := sorted(before.keys() - after.keys()):
        aws.call("logs", "untag_resource", resourceArn=arn, tagKeys=removed)
    if added := dict(after.items() - before.items()):
        aws.call("logs", "tag_resource", resourceArn=arn, tags=added)


_delete_log_group = deletes("logs", "delete_log_group", "logGroupName")


LOG_GROUP = ResourceKind(
    token="aws:cloudwatch/logGroup:LogGroup",
    inputs=updates("retentionInDays", "tags") | replaces("name"),
    defaults={"retentionInDays": 0},
    naming=Naming(longest=512),
    create=_create_log_group,
    read=_read_log_group,
    update=_update_log_group,
    delete=_delete_log_group,
    complaints=checks(_LIMITS),
)


# --- Flow logs

_PARAMETERS = {
    "iamRoleArn": "DeliverLogsPermissionArn",
    **aws_names("logDestinationType", "maxAggregationInterval", "trafficType"),
}
_FLOW_LOG_LIMITS: dict[str, Limit] = {
    "logDestinationType": Choice(("cloud-watch-logs",)),
    "trafficType": Choice(("ACCEPT", "REJECT", "ALL")),
}
_INTERVALS = (60, 600)


def _check_flow_log(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_required(inputs, ("iamRoleArn", "logDestination", "trafficType", "vpcId"))
    interval = inputs.get("maxAggregationInterval")
    if interval not in _INTERVALS:
        yield InvalidInput("maxAggregationInterval", f"must be {_INTERVALS[0]} or {_INTERVALS[1]}, not {interval}")


def _create_flow_log(aws: Aws, inputs: Props) -> str:
    _require_role(aws, inputs["iamRoleArn"])
    # moto takes a log group by name.
    group = inputs["logDestination"].partition(":log-group:")[2].removesuffix(":*")
    params = {**renamed(inputs, _PARAMETERS), "LogGroupName": group}
    target = {"ResourceIds": [inputs["vpcId"]], "ResourceType": "VPC"}
    response = aws.call("ec2", "create_flow_logs", ClientToken=str(uuid4()), **target, **params)
    for failed in response.get("Unsuccessful", []):
        raise ResourceError(failed["Error"]["Code"], failed["Error"]["Message"], key="logDestination")
    return ec2.tag(aws, response["FlowLogIds"][0], inputs)


def _require_role(aws: Aws, arn: str) -> None:
    try:
        aws.call("iam", "get_role", RoleName=arn.rpartition("/")[2])
    except ResourceError:
        raise ResourceError("InvalidParameter", "Unable to assume given IAM role", key="iamRoleArn") from None


def _read_flow_log(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    flow_log = ec2.described(aws, ec2.FLOW_LOG, ident)
    return {"arn": aws.arn("ec2", f"vpc-flow-log/{ident}"), "logFormat": flow_log["LogFormat"]}


FLOW_LOG = ResourceKind(
    token="aws:ec2/flowLog:FlowLog",
    inputs=updates("tags") | replaces(*_PARAMETERS, "logDestination", "vpcId"),
    defaults={"logDestinationType": "cloud-watch-logs", "maxAggregationInterval": 600},
    computed=frozenset({"logDestination"}),
    create=_create_flow_log,
    read=_read_flow_log,
    update=ec2.retag,
    delete=deletes("ec2", "delete_flow_logs", "FlowLogIds"),
    complaints=checks(_FLOW_LOG_LIMITS, _check_flow_log),
)
