"""Virtual private gateways."""

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import CUSTOMER_GATEWAY as EC2_CUSTOMER_GATEWAY
from bedplate.rehearsal.kinds.ec2 import VPC, born_with, described, is_live, require, retag, tag
from bedplate.rehearsal.kinds.ec2 import VPN_GATEWAY as NOUN
from bedplate.rehearsal.kinds.limits import Choice, Limit, Text, beyond, undoing
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_LIMITS: dict[str, Limit] = {"deviceName": Text(1, 255), "type": Choice(("ipsec.1",))}
_ASNS = {"bgpAsn": range(1, 2**31), "bgpAsnExtended": range(2**31, 2**32)}
_AMAZONS = frozenset({7224, 9059, 10124, 17943})  # VPN user guide, "Customer gateway options": reserved by AWS


def _customer_gateway_create(aws: Aws, inputs: Props) -> str:
    asn = inputs.get("bgpAsnExtended") or inputs["bgpAsn"]
    device = {"DeviceName": inputs["deviceName"]} if inputs.get("deviceName") else {}
    address = inputs["ipAddress"]
    made = aws.call("ec2", "create_customer_gateway", Type=inputs["type"], BgpAsn=int(asn), IpAddress=address, **device)
    return tag(aws, made["CustomerGateway"]["CustomerGatewayId"], inputs)


def _customer_gateway_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _customer_gateway_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, EC2_CUSTOMER_GATEWAY, ident)
    return {"arn": aws.arn("ec2", f"customer-gateway/{ident}")}


def _customer_gateway_delete(aws: Aws, ident: str, outputs: Props) -> None:
    for connection in aws.call("ec2", "describe_vpn_connections")["VpnConnections"]:
        if is_live(connection) and connection["CustomerGatewayId"] == ident:
            raise Refusal("IncorrectState", f"The customer gateway is in use: {connection['VpnConnectionId']}")
    aws.call("ec2", "delete_customer_gateway", CustomerGatewayId=ident)


def _customer_gateway_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    if bool(inputs.get("bgpAsn")) == bool(inputs.get("bgpAsnExtended")):
        yield Complaint("bgpAsn", "give exactly one of bgpAsn, bgpAsnExtended")
    for key, numbers in _ASNS.items():
        asn = inputs.get(key)
        if is_known(asn) and (not str(asn).isdigit() or int(asn) not in numbers or int(asn) in _AMAZONS):
            yield Complaint(key, f"{asn} is no AS number that AWS takes here")
    address = inputs.get("ipAddress")
    if is_known(address) and not _is_address(address):
        yield Complaint("ipAddress", f"{address!r} is not an IPv4 address")
    if not address:
        yield Complaint("ipAddress", "is missing: the rehearsal has no gateways known by certificate alone")


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


CUSTOMER_GATEWAY = Kind(
    token="aws:ec2/customerGateway:CustomerGateway",
    inputs=updates("tags") | replaces("bgpAsn", "bgpAsnExtended", "deviceName", "ipAddress", "type"),
    create=_customer_gateway_create,
    read=_customer_gateway_read,
    update=_customer_gateway_update,
    delete=_customer_gateway_delete,
    complaints=_customer_gateway_complaints,
    note="moto does not keep deviceName",
)


_PRIVATE = (range(64512, 65535), range(4200000000, 4294967295))


def asn_complaints(inputs: Props, key: str) -> Iterator[Complaint]:
    """Yield what is wrong with the AS number under an input: it is to be a private one, of two or of four bytes."""
    asn = inputs.get(key)
    if is_known(asn) and not any(int(asn) in numbers for numbers in _PRIVATE):
        yield Complaint(key, f"{asn} is no private AS number")


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
