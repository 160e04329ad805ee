"""VPN connections, to a virtual private gateway or a transit gateway."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import (
    CUSTOMER_GATEWAY,
    TRANSIT_GATEWAY,
    VPN_GATEWAY,
    block_complaints,
    described,
    require,
    retag,
    tag,
)
from bedplate.rehearsal.kinds.ec2 import VPN_CONNECTION as NOUN
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, beyond, inside, together
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_LIMITS: dict[str, Limit] = {
    "DpdTimeoutAction": Choice(("clear", "none", "restart")),
    "DpdTimeoutSeconds": Number(30, 3600),
    "Phase1LifetimeSeconds": Number(900, 28800),
    "Phase2LifetimeSeconds": Number(900, 3600),
    "RekeyFuzzPercentage": Number(0, 100),
    "RekeyMarginTimeSeconds": Number(60, 1800),
    "ReplayWindowSize": Number(64, 2048),
    "StartupAction": Choice(("add", "start")),
}
_WORDS: dict[str, tuple[str | int, ...]] = {
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


TUNNEL_CIDRS = _of_tunnels("InsideCidr")
TUNNEL_KEYS = _of_tunnels("PresharedKey")
TUNNEL_SETS = _of_tunnels(*_WORDS)
TUNNEL_OPTIONS = _of_tunnels(*_LIMITS)


def tunnel_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield what AWS refuses of both tunnels' options; a preshared key is never told back."""
    limits = {f"tunnel{number}{name}": limit for number in (1, 2) for name, limit in _LIMITS.items()}
    yield from beyond(inputs, limits)
    yield from block_complaints(inputs, TUNNEL_CIDRS, sizes=range(30, 31))
    for number in (1, 2):
        yield from _vpn_tunnel_limits_complaints(inputs, number)


def _vpn_tunnel_limits_complaints(inputs: Props, number: int) -> Iterator[Complaint]:
    key = inputs.get(name := f"tunnel{number}PresharedKey")
    if is_known(key) and not _KEY.fullmatch(key):
        yield Complaint(name, "is to have 8 to 64 letters, digits, full stops or underscores, and begin with no 0")
    block = inputs.get(name := f"tunnel{number}InsideCidr")
    if is_known(block) and not _fits_inside(block):
        yield Complaint(name, f"{block} is no /30 of {_INSIDE} that AWS leaves free")
    for end, words in _WORDS.items():
        given = inputs.get(name := f"tunnel{number}{end}")
        if is_known(given) and not set(given) <= set(words):
            yield Complaint(name, f"expected some of {list(words)}, got {given}")


def _fits_inside(text: str) -> bool:
    try:
        block = IPv4Network(text)
    except ValueError:
        return True  # already complained about as a CIDR block
    return block.subnet_of(_INSIDE) and block not in _RESERVED


TUNNEL_LOGS = ("tunnel1LogOptions", "tunnel2LogOptions")
_BLOCK = "cloudwatchLogOptions"
_FORMATS = {"bgpLogOutputFormat": Choice(("json", "text")), "logOutputFormat": Choice(("json", "text"))}
_SWITCHES = {"bgpLogEnabled": "bgpLogGroupArn", "logEnabled": "logGroupArn"}


def log_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield a complaint for each format that AWS does not know, and each log that has nowhere to go."""
    for name in TUNNEL_LOGS:
        yield from inside(inputs, f"{name}.{_BLOCK}", _FORMATS)
        for switch, group in _SWITCHES.items():
            if _told(inputs, name).get(switch) and not _told(inputs, name).get(group):
                yield Complaint(f"{name}.{_BLOCK}.{group}", f"goes with {switch}")


def require_log_groups(aws: Aws, inputs: Props) -> None:
    """Raise Refusal when a tunnel is to log to a group that does not exist."""
    for name in TUNNEL_LOGS:
        told = _told(inputs, name)
        for arn in filter(None, map(told.get, _SWITCHES.values())):
            if not _exists(aws, str(arn).removesuffix(":*")):
                raise Refusal("InvalidParameterValue", f"There is no log group {arn}", key=name)


def _exists(aws: Aws, arn: str) -> bool:
    prefix = aws.arn("logs", "log-group:")
    name = arn.removeprefix(prefix)
    found = aws.call("logs", "describe_log_groups", logGroupNamePrefix=name)["logGroups"]
    return arn.startswith(prefix) and name in [each["logGroupName"] for each in found]


def _told(inputs: Props, name: str) -> Mapping[str, Any]:
    options = inputs.get(name)
    block = options.get(_BLOCK) if is_known(options) else None
    return block if is_known(block) else {}


_OUTSIDE = (IPv4Network("198.51.100.0/24"), IPv4Network("203.0.113.0/24"))
# The third byte of an inside block: AWS keeps some blocks with lower ones, and 169, to itself.
_INSIDE_FIRST, _INSIDE_COUNT = 8, 128
_KEY_LENGTH = 32
_HOLD_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Tunnel:
    """One tunnel: AWS's outside address, the /30 inside, and the key that both ends share."""

    address: IPv4Address
    inside: IPv4Network
    key: str

    def outputs(self, number: int, asn: str) -> dict[str, str | int]:
        """Return the outputs of the tunnel of this number; AWS's end has the AS number `asn`."""
        near, far = self.inside.hosts()
        told: dict[str, str | int] = {
            "Address": str(self.address),
            "BgpAsn": asn,
            "BgpHoldtime": _HOLD_SECONDS,
            "CgwInsideAddress": str(far),
            "InsideCidr": str(self.inside),
            "PresharedKey": self.key,
            "VgwInsideAddress": str(near),
        }
        return {f"tunnel{number}{name}": value for name, value in told.items()}


def lay_tunnels(connection: str, inputs: Props) -> tuple[Tunnel, Tunnel]:
    """Return the tunnels of a connection."""
    first, second = (_lay(connection, number, inputs) for number in (1, 2))
    return first, second


def _lay(connection: str, number: int, inputs: Props) -> Tunnel:
    seed = hashlib.sha256(f"{connection}/{number}".encode())
    digits = seed.digest()
    inside = f"169.254.{_INSIDE_FIRST + digits[0] % _INSIDE_COUNT}.{digits[1] // 4 * 4}/30"
    return Tunnel(
        address=_OUTSIDE[number - 1][1 + digits[2] % 254],
        inside=IPv4Network(inputs.get(f"tunnel{number}InsideCidr") or inside),
        key=inputs.get(f"tunnel{number}PresharedKey") or seed.hexdigest()[:_KEY_LENGTH].replace("0", "z"),
    )


def device_text(connection: str, inputs: Props, tunnels: tuple[Tunnel, Tunnel], asn: str) -> str:
    """Return the XML that AWS makes for the device at the far end, with what such devices read of it."""
    gateway = str(inputs.get("vpnGatewayId") or inputs.get("transitGatewayId") or "")
    root = Element("vpn_connection", id=connection)
    _fill(root, {"customer_gateway_id": inputs["customerGatewayId"], "vpn_gateway_id": gateway})
    _fill(root, {"vpn_connection_type": inputs["type"]})
    for tunnel in tunnels:
        part = SubElement(root, "ipsec_tunnel")
        near, far = tunnel.inside.hosts()
        _fill(SubElement(part, "customer_gateway"), {"tunnel_inside_address": str(far)})
        ours = {"tunnel_outside_address": str(tunnel.address), "tunnel_inside_address": str(near), "asn": asn}
        _fill(SubElement(part, "vpn_gateway"), ours)
        _fill(SubElement(part, "ike"), {"pre_shared_key": tunnel.key})
    return tostring(root, encoding="unicode")


def _fill(parent: Element, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


_TYPE = "aws:ec2/vpnConnection:VpnConnection"
_GATEWAYS = {"transitGatewayId": TRANSIT_GATEWAY, "vpnGatewayId": VPN_GATEWAY}
_NETWORKS = ("localIpv4NetworkCidr", "remoteIpv4NetworkCidr")


def _create(aws: Aws, inputs: Props) -> str:
    require(aws, CUSTOMER_GATEWAY, inputs["customerGatewayId"])
    require_log_groups(aws, inputs)
    gateway = _gateway(aws, inputs)
    _require_fresh_blocks(aws, inputs, gateway)
    parameters = {name[0].upper() + name[1:]: inputs[name] for name in _GATEWAYS if inputs.get(name)}
    made = aws.call(
        "ec2",
        "create_vpn_connection",
        Type=inputs["type"],
        CustomerGatewayId=inputs["customerGatewayId"],
        Options={"StaticRoutesOnly": bool(inputs.get("staticRoutesOnly"))},
        **parameters,
    )
    ident: str = made["VpnConnection"]["VpnConnectionId"]
    aws.fakes(_TYPE)[ident] = _record(inputs, gateway)
    return tag(aws, ident, inputs)


def _record(inputs: Props, gateway: str) -> dict[str, Any]:
    """Return what moto does not keep: later connections of the gateway must not use the same blocks."""
    blocks = [inputs[name] for name in TUNNEL_CIDRS if inputs.get(name)]
    return {"gateway": gateway, "blocks": blocks}


def _gateway(aws: Aws, inputs: Props) -> str:
    """Return the id of AWS's end; raise Refusal when it does not exist."""
    for name, noun in _GATEWAYS.items():
        if inputs.get(name):
            require(aws, noun, inputs[name])
    return str(inputs.get("vpnGatewayId") or inputs.get("transitGatewayId") or "")


def _require_fresh_blocks(aws: Aws, inputs: Props, gateway: str) -> None:
    taken = {block for found in aws.fakes(_TYPE).values() if found["gateway"] == gateway for block in found["blocks"]}
    for name in TUNNEL_CIDRS:
        if inputs.get(name) in taken:
            told = f"The tunnel inside CIDR {inputs[name]} is in use on {gateway}"
            raise Refusal("InvalidParameterValue", told, key=name)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    require(aws, CUSTOMER_GATEWAY, new["customerGatewayId"])
    require_log_groups(aws, new)
    aws.fakes(_TYPE)[ident] = _record(new, _gateway(aws, new))
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
        "routes": [],
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


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpn_connection", VpnConnectionId=ident)
    aws.fakes(_TYPE).pop(ident, None)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from together(inputs, "transitGatewayId", "vpnGatewayId")
    yield from beyond(inputs, {"type": Choice(("ipsec.1",))})
    yield from block_complaints(inputs, _NETWORKS)
    yield from tunnel_complaints(inputs)
    yield from log_complaints(inputs)
    if inputs.get("enableAcceleration") and not inputs.get("transitGatewayId"):
        yield Complaint("enableAcceleration", "needs transitGatewayId")


VPN_CONNECTION = Kind(
    token=_TYPE,
    inputs=updates(*_GATEWAYS, *TUNNEL_KEYS, *_NETWORKS, *TUNNEL_OPTIONS, *TUNNEL_SETS, *TUNNEL_LOGS)
    | updates("customerGatewayId", "tags")
    | replaces(*TUNNEL_CIDRS, "enableAcceleration", "staticRoutesOnly", "type"),
    computed=frozenset({*TUNNEL_CIDRS, *TUNNEL_KEYS, *TUNNEL_LOGS, *_NETWORKS})
    | {"enableAcceleration", "staticRoutesOnly"},
    sets=frozenset(TUNNEL_SETS),
    moves=frozenset({"customerGatewayConfiguration", "tunnel1BgpAsn", "tunnel2BgpAsn"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto keeps no tunnel options and no change of gateway: they are checked and told back",
)
