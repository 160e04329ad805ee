"""Flow logs of VPCs, subnets, network interfaces and transit gateways."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import FLOW_LOG as NOUN
from bedplate.rehearsal.kinds.described import TRANSIT_GATEWAY, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Limit, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
_LIMITS: dict[str, Limit] = {
    "logDestinationType": Choice(("cloud-watch-logs", "s3")),
    "trafficType": Choice(("ACCEPT", "REJECT", "ALL")),
}
_INTERVALS = (60, 600)


def _create(aws: Aws, inputs: Props) -> str:
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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {"arn": aws.arn("ec2", f"vpc-flow-log/{ident}"), "logFormat": found["LogFormat"]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_flow_logs", FlowLogIds=[ident])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
