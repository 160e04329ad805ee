"""Virtual private gateways."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import VPC, described, is_live, require
from bedplate.rehearsal.kinds.described import VPN_GATEWAY as NOUN
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.private_asn import asn_complaints
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_AMAZON_ASN = 64512


def _create(aws: Aws, inputs: Props) -> str:
    asn = int(inputs.get("amazonSideAsn") or _AMAZON_ASN)
    zone = {"AvailabilityZone": inputs["availabilityZone"]} if inputs.get("availabilityZone") else {}
    tags = born_with("vpn-gateway", inputs)
    made = aws.call("ec2", "create_vpn_gateway", Type="ipsec.1", AmazonSideAsn=asn, **zone, **tags)
    ident: str = made["VpnGateway"]["VpnGatewayId"]
    with undoing(lambda: aws.call("ec2", "delete_vpn_gateway", VpnGatewayId=ident)):
        _attach(aws, ident, inputs.get("vpcId"))
    return ident


def _attach(aws: Aws, ident: str, vpc: str | None) -> None:
    if not vpc:
        return
    require(aws, VPC, vpc)
    taken = [item for item in aws.call("ec2", "describe_vpn_gateways")["VpnGateways"] if is_live(item)]
    if any(vpc in _networks(item) for item in taken):
        raise Refusal(
            "VpnGatewayLimitExceeded", f"The network {vpc} has a virtual private gateway already", key="vpcId"
        )
    if _networks(described(aws, NOUN, ident)):
        raise Refusal("VpnGatewayAttachmentLimitExceeded", f"The gateway {ident} is attached already", key="vpcId")
    aws.call("ec2", "attach_vpn_gateway", VpnGatewayId=ident, VpcId=vpc)


def _networks(found: dict[str, Any]) -> list[str]:
    return [each["VpcId"] for each in found["VpcAttachments"] if each["State"] == "attached"]


def _detach(aws: Aws, ident: str) -> None:
    for vpc in _networks(described(aws, NOUN, ident)):
        aws.call("ec2", "detach_vpn_gateway", VpnGatewayId=ident, VpcId=vpc)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("vpcId") != new.get("vpcId"):
        _detach(aws, ident)
        _attach(aws, ident, new.get("vpcId"))
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {
        "amazonSideAsn": str(found["AmazonSideAsn"]),
        "arn": aws.arn("ec2", f"vpn-gateway/{ident}"),
        "vpcId": next(iter(_networks(found)), ""),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    _detach(aws, ident)
    aws.call("ec2", "delete_vpn_gateway", VpnGatewayId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from asn_complaints(inputs, "amazonSideAsn")


VPN_GATEWAY = Kind(
    token="aws:ec2/vpnGateway:VpnGateway",
    inputs=updates("tags", "vpcId") | replaces("amazonSideAsn", "availabilityZone"),
    computed=frozenset({"amazonSideAsn", "vpcId"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
