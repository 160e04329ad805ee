"""Customer gateways and virtual private gateways, the two ends of a VPN connection."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.limits import Choice, Limit, Text, check_limits, is_ipv4_address, rollback
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Customer gateways

_CUSTOMER_LIMITS: dict[str, Limit] = {"deviceName": Text(1, 255), "type": Choice(("ipsec.1",))}
_ASNS = {"bgpAsn": range(1, 2**31), "bgpAsnExtended": range(2**31, 2**32)}
_RESERVED_ASNS = frozenset({7224, 9059, 10124, 17943})  # VPN user guide, "Customer gateway options": reserved by AWS


def _check_customer_gateway(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from check_limits(inputs, _CUSTOMER_LIMITS)
    if bool(inputs.get("bgpAsn")) == bool(inputs.get("bgpAsnExtended")):
        yield InvalidInput("bgpAsn", "or bgpAsnExtended must be set, and not both")
    for key, numbers in _ASNS.items():
        asn = inputs.get(key)
        if is_known(asn) and (not str(asn).isdigit() or int(asn) not in numbers or int(asn) in _RESERVED_ASNS):
            yield InvalidInput(key, f"must be {numbers.start} to {numbers.stop - 1} and not reserved by AWS, not {asn}")
    address = inputs.get("ipAddress")
    if is_known(address) and not is_ipv4_address(address):
        yield InvalidInput("ipAddress", f"must be an IPv4 address, not {address!r}")
    if not address:
        yield InvalidInput("ipAddress", "is required: authentication by certificate is not modelled")


def _create_customer_gateway(aws: Aws, inputs: Props) -> str:
    asn = inputs.get("bgpAsnExtended") or inputs["bgpAsn"]
    device = {"DeviceName": inputs["deviceName"]} if inputs.get("deviceName") else {}
    address = inputs["ipAddress"]
    response = aws.call(
        "ec2", "create_customer_gateway", Type=inputs["type"], BgpAsn=int(asn), IpAddress=address, **device
    )
    return ec2.tag(aws, response["CustomerGateway"]["CustomerGatewayId"], inputs)


def _read_customer_gateway(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    ec2.described(aws, ec2.CUSTOMER_GATEWAY, ident)
    return {"arn": aws.arn("ec2", f"customer-gateway/{ident}")}


def _delete_customer_gateway(aws: Aws, ident: str, outputs: Props) -> None:
    for connection in aws.call("ec2", "describe_vpn_connections")["VpnConnections"]:
        if ec2.is_live(connection) and connection["CustomerGatewayId"] == ident:
            raise ResourceError("IncorrectState", f"The customer gateway is in use: {connection['VpnConnectionId']}")
    aws.call("ec2", "delete_customer_gateway", CustomerGatewayId=ident)


CUSTOMER_GATEWAY = ResourceKind(
    token="aws:ec2/customerGateway:CustomerGateway",
    inputs=updates("tags") | replaces("bgpAsn", "bgpAsnExtended", "deviceName", "ipAddress", "type"),
    create=_create_customer_gateway,
    read=_read_customer_gateway,
    update=ec2.retag,
    delete=_delete_customer_gateway,
    complaints=_check_customer_gateway,
    note="moto does not store deviceName",
)
_PRIVATE_ASNS = (range(64512, 65535), range(4200000000, 4294967295))


def check_private_asn(inputs: Props, key: str) -> Iterator[InvalidInput]:
    """Yield an error unless the AS number under an input is private, with two or four bytes."""
    asn = inputs.get(key)
    if is_known(asn) and not any(int(asn) in numbers for numbers in _PRIVATE_ASNS):
        yield InvalidInput(key, f"must be a private AS number (64512-65534, 4200000000-4294967294), not {asn}")


# --- Virtual private gateways

_DEFAULT_ASN = 64512


def _check_vpn_gateway(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from check_private_asn(inputs, "amazonSideAsn")


def _create_vpn_gateway(aws: Aws, inputs: Props) -> str:
    asn = int(inputs.get("amazonSideAsn") or _DEFAULT_ASN)
    zone = {"AvailabilityZone": inputs["availabilityZone"]} if inputs.get("availabilityZone") else {}
    tags = ec2.tag_specifications("vpn-gateway", inputs)
    response = aws.call("ec2", "create_vpn_gateway", Type="ipsec.1", AmazonSideAsn=asn, **zone, **tags)
    ident: str = response["VpnGateway"]["VpnGatewayId"]
    with rollback(lambda: aws.call("ec2", "delete_vpn_gateway", VpnGatewayId=ident)):
        _attach_gateway(aws, ident, inputs.get("vpcId"))
    return ident


def _attach_gateway(aws: Aws, ident: str, vpc: str | None) -> None:
    if not vpc:
        return
    ec2.require(aws, ec2.VPC, vpc)
    gateways = [gateway for gateway in aws.call("ec2", "describe_vpn_gateways")["VpnGateways"] if ec2.is_live(gateway)]
    if any(vpc in _attached_vpcs(gateway) for gateway in gateways):
        raise ResourceError(
            "VpnGatewayLimitExceeded", f"The network {vpc} has a virtual private gateway already", key="vpcId"
        )
    if _attached_vpcs(ec2.described(aws, ec2.VPN_GATEWAY, ident)):
        raise ResourceError(
            "VpnGatewayAttachmentLimitExceeded", f"The gateway {ident} is attached already", key="vpcId"
        )
    aws.call("ec2", "attach_vpn_gateway", VpnGatewayId=ident, VpcId=vpc)


def _attached_vpcs(gateway: dict[str, Any]) -> list[str]:
    return [attachment["VpcId"] for attachment in gateway["VpcAttachments"] if attachment["State"] == "attached"]


def _read_vpn_gateway(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    gateway = ec2.described(aws, ec2.VPN_GATEWAY, ident)
    return {
        "amazonSideAsn": str(gateway["AmazonSideAsn"]),
        "arn": aws.arn("ec2", f"vpn-gateway/{ident}"),
        "vpcId": next(iter(_attached_vpcs(gateway)), ""),
    }


def _update_vpn_gateway(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("vpcId") != new.get("vpcId"):
        _detach_gateway(aws, ident)
        _attach_gateway(aws, ident, new.get("vpcId"))
    ec2.retag(aws, ident, old, new)


def _detach_gateway(aws: Aws, ident: str) -> None:
    for vpc in _attached_vpcs(ec2.described(aws, ec2.VPN_GATEWAY, ident)):
        aws.call("ec2", "detach_vpn_gateway", VpnGatewayId=ident, VpcId=vpc)


def _delete_vpn_gateway(aws: Aws, ident: str, outputs: Props) -> None:
    _detach_gateway(aws, ident)
    aws.call("ec2", "delete_vpn_gateway", VpnGatewayId=ident)


VPN_GATEWAY = ResourceKind(
    token="aws:ec2/vpnGateway:VpnGateway",
    inputs=updates("tags", "vpcId") | replaces("amazonSideAsn", "availabilityZone"),
    computed=frozenset({"amazonSideAsn", "vpcId"}),
    create=_create_vpn_gateway,
    read=_read_vpn_gateway,
    update=_update_vpn_gateway,
    delete=_delete_vpn_gateway,
    complaints=_check_vpn_gateway,
)
