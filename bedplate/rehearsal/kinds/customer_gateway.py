"""Customer gateways: what AWS knows of the far end of a VPN."""

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import CUSTOMER_GATEWAY as NOUN
from bedplate.rehearsal.kinds.described import described, is_live
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Limit, Text, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS: dict[str, Limit] = {"deviceName": Text(1, 255), "type": Choice(("ipsec.1",))}
_ASNS = {"bgpAsn": range(1, 2**31), "bgpAsnExtended": range(2**31, 2**32)}
_AMAZONS = frozenset({7224, 9059, 10124, 17943})  # VPN user guide, "Customer gateway options": reserved by AWS


def _create(aws: Aws, inputs: Props) -> str:
    asn = inputs.get("bgpAsnExtended") or inputs["bgpAsn"]
    device = {"DeviceName": inputs["deviceName"]} if inputs.get("deviceName") else {}
    address = inputs["ipAddress"]
    made = aws.call("ec2", "create_customer_gateway", Type=inputs["type"], BgpAsn=int(asn), IpAddress=address, **device)
    return tag(aws, made["CustomerGateway"]["CustomerGatewayId"], inputs)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, NOUN, ident)
    return {"arn": aws.arn("ec2", f"customer-gateway/{ident}")}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    for connection in aws.call("ec2", "describe_vpn_connections")["VpnConnections"]:
        if is_live(connection) and connection["CustomerGatewayId"] == ident:
            raise Refusal("IncorrectState", f"The customer gateway is in use: {connection['VpnConnectionId']}")
    aws.call("ec2", "delete_customer_gateway", CustomerGatewayId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto does not keep deviceName",
)
