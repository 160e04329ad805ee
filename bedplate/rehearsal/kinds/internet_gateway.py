"""Internet gateways."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Props, updates
from bedplate.rehearsal.kinds.described import INTERNET_GATEWAY as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    made = aws.call("ec2", "create_internet_gateway", **born_with("internet-gateway", inputs))
    ident: str = made["InternetGateway"]["InternetGatewayId"]
    with undoing(lambda: aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)):
        _attach(aws, ident, inputs.get("vpcId"))
    return ident


def _attach(aws: Aws, ident: str, vpc: str | None) -> None:
    if not vpc:
        return
    there = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if aws.call("ec2", "describe_internet_gateways", Filters=there)["InternetGateways"]:
        raise Refusal("InvalidParameterValue", f"Network {vpc} already has an internet gateway attached", key="vpcId")
    aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=vpc)


def _detach(aws: Aws, ident: str) -> None:
    for attachment in described(aws, NOUN, ident)["Attachments"]:
        aws.call("ec2", "detach_internet_gateway", InternetGatewayId=ident, VpcId=attachment["VpcId"])


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("vpcId") != new.get("vpcId"):
        _detach(aws, ident)
        _attach(aws, ident, new.get("vpcId"))
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    attached = described(aws, NOUN, ident)["Attachments"]
    return {
        "arn": aws.arn("ec2", f"internet-gateway/{ident}"),
        "ownerId": aws.account,
        "vpcId": attached[0]["VpcId"] if attached else "",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    _detach(aws, ident)
    aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)


INTERNET_GATEWAY = Kind(
    token="aws:ec2/internetGateway:InternetGateway",
    inputs=updates("tags", "vpcId"),
    computed=frozenset({"vpcId"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
)
