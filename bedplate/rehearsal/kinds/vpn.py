"""VPN connections to a virtual private gateway or a transit gateway, and the gateways at their two ends.

moto has no tunnels: their options are checked, and addresses and keys are derived from the id of the connection.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, renamed
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Limit,
    Number,
    Text,
    check_exclusive,
    check_limits,
    check_nested,
    checks,
    is_ipv4_address,
    rollback,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Customer gateways

_CUSTOMER_LIMITS: dict[str, Limit] = {"deviceName": Text(1, 255), "type": Choice(("ipsec.1",))}
_ASNS = {"bgpAsn": range(1, 2**31), "bgpAsnExtended": range(2**31, 2**32)}
_RESERVED_ASNS = frozenset({7224, 9059, 10124, 17943})  # VPN user guide, "Customer gateway options": reserved by AWS


def _check_customer_gateway(inputs: Props) -> Iterator[InvalidInput]:
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
    params = renamed(inputs, aws_names("deviceName", "ipAddress", "type"))
    response = aws.call("ec2", "create_customer_gateway", BgpAsn=int(asn), **params)
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
    complaints=checks(_CUSTOMER_LIMITS, _check_customer_gateway),
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


def _create_vpn_gateway(aws: Aws, inputs: Props) -> str:
    tags = ec2.tag_specifications("vpn-gateway", inputs)
    response = aws.call("ec2", "create_vpn_gateway", Type="ipsec.1", AmazonSideAsn=_DEFAULT_ASN, **tags)
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
    inputs=updates("tags", "vpcId"),
    computed=frozenset({"vpcId"}),
    create=_create_vpn_gateway,
    read=_read_vpn_gateway,
    update=_update_vpn_gateway,
    delete=_delete_vpn_gateway,
)


_LIMITS: dict[str, Limit] = {
    "DpdTimeoutAction": Choice(("clear", "none", "restart")),
    "DpdTimeoutSeconds": Number(30, 3600),
    "StartupAction": Choice(("add", "start")),
}
_ALLOWED: dict[str, tuple[str | int, ...]] = {
    "IkeVersions": ("ikev1", "ikev2"),
    "Phase1DhGroupNumbers": (2, *range(14, 25)),
    "Phase1EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase1IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
    "Phase2DhGroupNumbers": (2, 5, *range(14, 25)),
    "Phase2EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase2IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
}
_LINK_LOCAL = IPv4Network("169.254.0.0/16")
_RESERVED = tuple(IPv4Network(f"169.254.{part}/30") for part in (*(f"{n}.0" for n in range(6)), "169.252"))


def _tunnel_inputs(*names: str) -> tuple[str, ...]:
    return tuple(f"tunnel{number}{name}" for number in (1, 2) for name in names)


TUNNEL_CIDRS = _tunnel_inputs("InsideCidr")
TUNNEL_SETS = _tunnel_inputs(*_ALLOWED)
TUNNEL_OPTIONS = _tunnel_inputs(*_LIMITS)


def check_tunnels(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each invalid tunnel option."""
    limits = {f"tunnel{number}{name}": limit for number in (1, 2) for name, limit in _LIMITS.items()}
    yield from check_limits(inputs, limits)
    yield from ec2.check_cidrs(inputs, TUNNEL_CIDRS, sizes=range(30, 31))
    for number in (1, 2):
        yield from _check_tunnel(inputs, number)


def _check_tunnel(inputs: Props, number: int) -> Iterator[InvalidInput]:
    block = inputs.get(name := f"tunnel{number}InsideCidr")
    if is_known(block) and not _is_free_inside_block(block):
        yield InvalidInput(name, f"{block} must be a /30 of {_LINK_LOCAL} that AWS does not reserve")
    for suffix, allowed in _ALLOWED.items():
        values = inputs.get(name := f"tunnel{number}{suffix}")
        if is_known(values) and not set(values) <= set(allowed):
            yield InvalidInput(name, f"must be some of {', '.join(map(str, allowed))}, not {values}")


def _is_free_inside_block(text: str) -> bool:
    try:
        block = IPv4Network(text)
    except ValueError:
        return True  # check_cidrs has reported it
    return block.subnet_of(_LINK_LOCAL) and block not in _RESERVED


TUNNEL_LOGS = ("tunnel1LogOptions", "tunnel2LogOptions")
_LOG_BLOCK = "cloudwatchLogOptions"
_LOG_FORMATS = {"bgpLogOutputFormat": Choice(("json", "text")), "logOutputFormat": Choice(("json", "text"))}
_LOG_GROUPS = {"bgpLogEnabled": "bgpLogGroupArn", "logEnabled": "logGroupArn"}


def check_tunnel_logs(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each unknown log format, and each enabled log without a log group."""
    for name in TUNNEL_LOGS:
        yield from check_nested(inputs, f"{name}.{_LOG_BLOCK}", _LOG_FORMATS)
        for switch, group in _LOG_GROUPS.items():
            if _log_options(inputs, name).get(switch) and not _log_options(inputs, name).get(group):
                yield InvalidInput(f"{name}.{_LOG_BLOCK}.{group}", f"is required when {switch} is true")


def require_log_groups(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError if the log group of a tunnel does not exist."""
    for name in TUNNEL_LOGS:
        options = _log_options(inputs, name)
        for arn in filter(None, map(options.get, _LOG_GROUPS.values())):
            if not _log_group_exists(aws, str(arn).removesuffix(":*")):
                raise ResourceError("InvalidParameterValue", f"The log group {arn} does not exist", key=name)


def _log_group_exists(aws: Aws, arn: str) -> bool:
    prefix = aws.arn("logs", "log-group:")
    name = arn.removeprefix(prefix)
    groups = aws.call("logs", "describe_log_groups", logGroupNamePrefix=name)["logGroups"]
    return arn.startswith(prefix) and name in [group["logGroupName"] for group in groups]


def _log_options(inputs: Props, name: str) -> Mapping[str, Any]:
    options = inputs.get(name)
    block = options.get(_LOG_BLOCK) if is_known(options) else None
    return block if is_known(block) else {}


_OUTSIDE_BLOCKS = (IPv4Network("198.51.100.0/24"), IPv4Network("203.0.113.0/24"))
# Range of the third byte of an inside block: AWS reserves some blocks below 8, and 169.
_FIRST_BYTE, _BYTE_COUNT = 8, 128
_KEY_LENGTH = 32
_HOLD_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Tunnel:
    """One tunnel: the outside address of AWS, the inside /30 block and the preshared key."""

    address: IPv4Address
    inside: IPv4Network
    key: str

    def outputs(self, number: int, asn: str) -> dict[str, str | int]:
        """Return the outputs of the tunnel with this number; `asn` is the AS number of AWS."""
        aws_address, device_address = self.inside.hosts()
        values: dict[str, str | int] = {
            "Address": str(self.address),
            "BgpAsn": asn,
            "BgpHoldtime": _HOLD_SECONDS,
            "CgwInsideAddress": str(device_address),
            "InsideCidr": str(self.inside),
            "PresharedKey": self.key,
            "VgwInsideAddress": str(aws_address),
        }
        return {f"tunnel{number}{name}": value for name, value in values.items()}


def make_tunnels(connection: str, inputs: Props) -> tuple[Tunnel, Tunnel]:
    """Return the tunnels of a connection."""
    first, second = (_make_tunnel(connection, number, inputs) for number in (1, 2))
    return first, second


def _make_tunnel(connection: str, number: int, inputs: Props) -> Tunnel:
    seed = hashlib.sha256(f"{connection}/{number}".encode())
    digest = seed.digest()
    check_nested = f"169.254.{_FIRST_BYTE + digest[0] % _BYTE_COUNT}.{digest[1] // 4 * 4}/30"
    return Tunnel(
        address=_OUTSIDE_BLOCKS[number - 1][1 + digest[2] % 254],
        inside=IPv4Network(inputs.get(f"tunnel{number}InsideCidr") or check_nested),
        key=seed.hexdigest()[:_KEY_LENGTH].replace("0", "z"),
    )


def device_configuration(connection: str, inputs: Props, tunnels: tuple[Tunnel, Tunnel], asn: str) -> str:
    """Return the configuration for the customer gateway device, as XML: the parts that devices read."""
    gateway = str(inputs.get("vpnGatewayId") or inputs.get("transitGatewayId") or "")
    root = Element("vpn_connection", id=connection)
    _add_texts(root, {"customer_gateway_id": inputs["customerGatewayId"], "vpn_gateway_id": gateway})
    _add_texts(root, {"vpn_connection_type": inputs["type"]})
    for tunnel in tunnels:
        element = SubElement(root, "ipsec_tunnel")
        aws_address, device_address = tunnel.inside.hosts()
        _add_texts(SubElement(element, "customer_gateway"), {"tunnel_inside_address": str(device_address)})
        aws_side = {
            "tunnel_outside_address": str(tunnel.address),
            "tunnel_inside_address": str(aws_address),
            "asn": asn,
        }
        _add_texts(SubElement(element, "vpn_gateway"), aws_side)
        _add_texts(SubElement(element, "ike"), {"pre_shared_key": tunnel.key})
    return tostring(root, encoding="unicode")


def _add_texts(parent: Element, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


_TYPE = "aws:ec2/vpnConnection:VpnConnection"
_GATEWAYS = {"transitGatewayId": ec2.TRANSIT_GATEWAY, "vpnGatewayId": ec2.VPN_GATEWAY}


def _check(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from check_exclusive(inputs, "transitGatewayId", "vpnGatewayId")
    yield from check_limits(inputs, {"type": Choice(("ipsec.1",))})
    yield from check_tunnels(inputs)
    yield from check_tunnel_logs(inputs)


def _create(aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.CUSTOMER_GATEWAY, inputs["customerGatewayId"])
    require_log_groups(aws, inputs)
    gateway = _gateway_id(aws, inputs)
    _require_unused_blocks(aws, inputs, gateway)
    response = aws.call(
        "ec2",
        "create_vpn_connection",
        Options={"StaticRoutesOnly": bool(inputs.get("staticRoutesOnly"))},
        **renamed(inputs, aws_names(*_GATEWAYS, "customerGatewayId", "type")),
    )
    ident: str = response["VpnConnection"]["VpnConnectionId"]
    aws.fakes(_TYPE)[ident] = _gateway_blocks(inputs, gateway)
    return ec2.tag(aws, ident, inputs)


def _gateway_id(aws: Aws, inputs: Props) -> str:
    """Return the id of the gateway of AWS; raise ResourceError if it does not exist."""
    for name, resource in _GATEWAYS.items():
        if inputs.get(name):
            ec2.require(aws, resource, inputs[name])
    return str(inputs.get("vpnGatewayId") or inputs.get("transitGatewayId") or "")


def _require_unused_blocks(aws: Aws, inputs: Props, gateway: str) -> None:
    used = {
        block
        for connection in aws.fakes(_TYPE).values()
        if connection["gateway"] == gateway
        for block in connection["blocks"]
    }
    for name in TUNNEL_CIDRS:
        if inputs.get(name) in used:
            message = f"The tunnel inside CIDR {inputs[name]} is in use on {gateway}"
            raise ResourceError("InvalidParameterValue", message, key=name)


def _gateway_blocks(inputs: Props, gateway: str) -> dict[str, Any]:
    """Return the gateway and its inside blocks, which moto does not store: other connections must not use them."""
    blocks = [inputs[name] for name in TUNNEL_CIDRS if inputs.get(name)]
    return {"gateway": gateway, "blocks": blocks}


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    ec2.described(aws, ec2.VPN_CONNECTION, ident)
    tunnels, asn = make_tunnels(ident, inputs), _amazon_asn(aws, inputs)
    return {
        "arn": aws.arn("ec2", f"vpn-connection/{ident}"),
        "customerGatewayConfiguration": device_configuration(ident, inputs, tunnels, asn),
        "localIpv4NetworkCidr": "0.0.0.0/0",
        "outsideIpAddressType": "PublicIpv4",
        "presharedKeyStorage": "Standard",
        "remoteIpv4NetworkCidr": "0.0.0.0/0",
        "routes": [],
        "transitGatewayAttachmentId": _hub_attachment(aws, ident, inputs),
        "tunnelInsideIpVersion": "ipv4",
        **tunnels[0].outputs(1, asn),
        **tunnels[1].outputs(2, asn),
    }


def _amazon_asn(aws: Aws, inputs: Props) -> str:
    if gateway := inputs.get("vpnGatewayId"):
        return str(ec2.described(aws, ec2.VPN_GATEWAY, gateway)["AmazonSideAsn"])
    if gateway := inputs.get("transitGatewayId"):
        return str(ec2.described(aws, ec2.TRANSIT_GATEWAY, gateway)["Options"]["AmazonSideAsn"])
    return ""


def _hub_attachment(aws: Aws, ident: str, inputs: Props) -> str:
    filters = {"resource-id": ident}
    attachments = ec2.matching(aws, ec2.TRANSIT_ATTACHMENT, filters) if inputs.get("transitGatewayId") else []
    return next((str(attachment["TransitGatewayAttachmentId"]) for attachment in attachments), "")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    ec2.require(aws, ec2.CUSTOMER_GATEWAY, new["customerGatewayId"])
    require_log_groups(aws, new)
    aws.fakes(_TYPE)[ident] = _gateway_blocks(new, _gateway_id(aws, new))
    ec2.retag(aws, ident, old, new)


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpn_connection", VpnConnectionId=ident)
    aws.fakes(_TYPE).pop(ident, None)


VPN_CONNECTION = ResourceKind(
    token=_TYPE,
    inputs=updates(*_GATEWAYS, *TUNNEL_OPTIONS, *TUNNEL_SETS, *TUNNEL_LOGS, "customerGatewayId", "tags")
    | replaces(*TUNNEL_CIDRS, "staticRoutesOnly", "type"),
    computed=frozenset({*TUNNEL_CIDRS, *TUNNEL_LOGS, "staticRoutesOnly"}),
    sets=frozenset(TUNNEL_SETS),
    changed_by_update=frozenset({"customerGatewayConfiguration", "tunnel1BgpAsn", "tunnel2BgpAsn"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_check,
    note="moto does not store tunnel options and changes of the gateway: they are checked only",
)
