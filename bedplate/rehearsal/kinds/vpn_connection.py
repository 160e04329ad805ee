"""VPN connections, to a virtual private gateway or a transit gateway, and their static routes."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import CUSTOMER_GATEWAY, TRANSIT_GATEWAY, VPN_GATEWAY, described, require
from bedplate.rehearsal.kinds.described import VPN_CONNECTION as NOUN
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, beyond, together
from bedplate.rehearsal.kinds.vpn_tunnels import device_text, lay_tunnels
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_TYPE = "aws:ec2/vpnConnection:VpnConnection"
_ROUTES = "aws:ec2/vpnConnectionRoute:VpnConnectionRoute"
_GATEWAYS = {"transitGatewayId": TRANSIT_GATEWAY, "vpnGatewayId": VPN_GATEWAY}
# What a tunnel may be told, and its limits: EC2 API reference, VpnTunnelOptionsSpecification.
_TUNNEL_LIMITS: dict[str, Limit] = {
    "DpdTimeoutAction": Choice(("clear", "none", "restart")),
    "DpdTimeoutSeconds": Number(30, 3600),
    "Phase1LifetimeSeconds": Number(900, 28800),
    "Phase2LifetimeSeconds": Number(900, 3600),
    "RekeyFuzzPercentage": Number(0, 100),
    "RekeyMarginTimeSeconds": Number(60, 1800),
    "ReplayWindowSize": Number(64, 2048),
    "StartupAction": Choice(("add", "start")),
}
_TUNNEL_SETS: dict[str, tuple[str | int, ...]] = {
    "IkeVersions": ("ikev1", "ikev2"),
    "Phase1DhGroupNumbers": (2, *range(14, 25)),
    "Phase1EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase1IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
    "Phase2DhGroupNumbers": (2, 5, *range(14, 25)),
    "Phase2EncryptionAlgorithms": ("AES128", "AES256", "AES128-GCM-16", "AES256-GCM-16"),
    "Phase2IntegrityAlgorithms": ("SHA1", "SHA2-256", "SHA2-384", "SHA2-512"),
}
_KEY = re.compile(r"[1-9A-Za-z._][0-9A-Za-z._]{7,63}")
_INSIDE = IPv4Network("169.254.0.0/16")
_RESERVED = tuple(IPv4Network(f"169.254.{part}/30") for part in (*(f"{n}.0" for n in range(6)), "169.252"))


def _of_tunnels(*names: str) -> tuple[str, ...]:
    return tuple(f"tunnel{number}{name}" for number in (1, 2) for name in names)


_CIDRS = _of_tunnels("InsideCidr")
_KEYS = _of_tunnels("PresharedKey")
_SETS = _of_tunnels(*_TUNNEL_SETS)
_OPTIONS = _of_tunnels(*_TUNNEL_LIMITS)
_NETWORKS = ("localIpv4NetworkCidr", "remoteIpv4NetworkCidr")


def _create(aws: Aws, inputs: Props) -> str:
    require(aws, CUSTOMER_GATEWAY, inputs["customerGatewayId"])
    gateway = _gateway(aws, inputs)
    _require_fresh_blocks(aws, inputs, gateway)
    static = bool(inputs.get("staticRoutesOnly"))
    parameters = {name[0].upper() + name[1:]: inputs[name] for name in _GATEWAYS if inputs.get(name)}
    made = aws.call(
        "ec2",
        "create_vpn_connection",
        Type=inputs["type"],
        CustomerGatewayId=inputs["customerGatewayId"],
        Options={"StaticRoutesOnly": static},
        **parameters,
    )
    ident: str = made["VpnConnection"]["VpnConnectionId"]
    # moto keeps no options; routes ask for the first, later connections of the gateway for the blocks.
    blocks = [inputs[name] for name in _CIDRS if inputs.get(name)]
    aws.fakes(_TYPE)[ident] = {"staticRoutesOnly": static, "gateway": gateway, "blocks": blocks}
    return tag(aws, ident, inputs)


def _gateway(aws: Aws, inputs: Props) -> str:
    """Return the id of AWS's end; raise Refusal when it does not exist."""
    for name, noun in _GATEWAYS.items():
        if inputs.get(name):
            require(aws, noun, inputs[name])
    return str(inputs.get("vpnGatewayId") or inputs.get("transitGatewayId") or "")


def _require_fresh_blocks(aws: Aws, inputs: Props, gateway: str) -> None:
    taken = {block for found in aws.fakes(_TYPE).values() if found["gateway"] == gateway for block in found["blocks"]}
    for name in _CIDRS:
        if inputs.get(name) in taken:
            told = f"The tunnel inside CIDR {inputs[name]} is in use on {gateway}"
            raise Refusal("InvalidParameterValue", told, key=name)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    require(aws, CUSTOMER_GATEWAY, new["customerGatewayId"])
    aws.fakes(_TYPE)[ident]["gateway"] = _gateway(aws, new)
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, NOUN, ident)
    tunnels, asn = lay_tunnels(ident, inputs), _amazon_asn(aws, inputs)
    return {
        "arn": aws.arn("ec2", f"vpn-connection/{ident}"),
        "customerGatewayConfiguration": device_text(ident, inputs, tunnels, asn),
        "localIpv4NetworkCidr": inputs.get("localIpv4NetworkCidr") or "0.0.0.0/0",
        "outsideIpAddressType": "PublicIpv4",
        "presharedKeyStorage": "Standard",
        "remoteIpv4NetworkCidr": inputs.get("remoteIpv4NetworkCidr") or "0.0.0.0/0",
        "routes": _routes(aws, ident),
        "transitGatewayAttachmentId": _hub_attachment(aws, ident, inputs),
        "tunnelInsideIpVersion": "ipv4",
        **tunnels[0].outputs(1, asn),
        **tunnels[1].outputs(2, asn),
    }


def _amazon_asn(aws: Aws, inputs: Props) -> str:
    if gateway := inputs.get("vpnGatewayId"):
        return str(described(aws, VPN_GATEWAY, gateway)["AmazonSideAsn"])
    if gateway := inputs.get("transitGatewayId"):
        return str(described(aws, TRANSIT_GATEWAY, gateway)["Options"]["AmazonSideAsn"])
    return ""


def _hub_attachment(aws: Aws, ident: str, inputs: Props) -> str:
    if not inputs.get("transitGatewayId"):
        return ""
    listed = aws.call("ec2", "describe_transit_gateway_attachments")["TransitGatewayAttachments"]
    return next((str(each["TransitGatewayAttachmentId"]) for each in listed if each["ResourceId"] == ident), "")


def _routes(aws: Aws, ident: str) -> list[dict[str, str]]:
    ours = [found for found in aws.fakes(_ROUTES).values() if found["vpnConnectionId"] == ident]
    blocks = sorted(found["destinationCidrBlock"] for found in ours)
    return [{"destinationCidrBlock": block, "source": "Static", "state": "available"} for block in blocks]


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpn_connection", VpnConnectionId=ident)
    aws.fakes(_TYPE).pop(ident, None)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from together(inputs, "transitGatewayId", "vpnGatewayId")
    limits = {f"tunnel{number}{name}": limit for number in (1, 2) for name, limit in _TUNNEL_LIMITS.items()}
    yield from beyond(inputs, {"type": Choice(("ipsec.1",)), **limits})
    yield from block_complaints(inputs, _NETWORKS)
    yield from block_complaints(inputs, _CIDRS, sizes=range(30, 31))
    for number in (1, 2):
        yield from _tunnel_complaints(inputs, number)
    if inputs.get("enableAcceleration") and not inputs.get("transitGatewayId"):
        yield Complaint("enableAcceleration", "needs transitGatewayId")


def _tunnel_complaints(inputs: Props, number: int) -> Iterator[Complaint]:
    key = inputs.get(name := f"tunnel{number}PresharedKey")
    if is_known(key) and not _KEY.fullmatch(key):
        yield Complaint(name, "is to have 8 to 64 letters, digits, full stops or underscores, and begin with no 0")
    block = inputs.get(name := f"tunnel{number}InsideCidr")
    if is_known(block) and not _fits_inside(block):
        yield Complaint(name, f"{block} is no /30 of {_INSIDE} that AWS leaves free")
    for end, words in _TUNNEL_SETS.items():
        given = inputs.get(name := f"tunnel{number}{end}")
        if is_known(given) and not set(given) <= set(words):
            yield Complaint(name, f"expected some of {list(words)}, got {given}")


def _fits_inside(text: str) -> bool:
    try:
        block = IPv4Network(text)
    except ValueError:
        return True  # already complained about as a CIDR block
    return block.subnet_of(_INSIDE) and block not in _RESERVED


def _create_route(aws: Aws, inputs: Props) -> str:
    connection, block = inputs["vpnConnectionId"], inputs["destinationCidrBlock"]
    require(aws, NOUN, connection)
    if not aws.fakes(_TYPE).get(connection, {}).get("staticRoutesOnly"):
        told = f"The VPN connection {connection} does not support static routes"
        raise Refusal("InvalidVpnConnection.InvalidType", told)
    # The provider's own: AWS gives these routes no ids.
    ident = f"{block}:{connection}"
    aws.fakes(_ROUTES)[ident] = {"destinationCidrBlock": block, "vpnConnectionId": connection}
    return ident


def _read_route(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if ident not in aws.fakes(_ROUTES):
        raise Refusal("InvalidRoute.NotFound", f"The VPN connection has no route {ident}")
    return {}


def _delete_route(aws: Aws, ident: str, outputs: Props) -> None:
    aws.fakes(_ROUTES).pop(ident, None)


def _route_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["destinationCidrBlock"])


VPN_CONNECTION = Kind(
    token=_TYPE,
    inputs=updates(*_GATEWAYS, *_KEYS, *_NETWORKS, *_OPTIONS, *_SETS, "customerGatewayId", "tags")
    | replaces(*_CIDRS, "enableAcceleration", "staticRoutesOnly", "type"),
    computed=frozenset({*_CIDRS, *_KEYS, *_NETWORKS, "enableAcceleration", "staticRoutesOnly"}),
    sets=frozenset(_SETS),
    moves=frozenset({"customerGatewayConfiguration"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto keeps no tunnel options and no change of gateway: they are checked and told back",
)
VPN_CONNECTION_ROUTE = Kind(
    token=_ROUTES,
    inputs=replaces("destinationCidrBlock", "vpnConnectionId"),
    create=_create_route,
    read=_read_route,
    delete=_delete_route,
    complaints=_route_complaints,
    support=Support.FAKED,
    note="moto has no routes of VPN connections",
)
