"""VPN connections, to a virtual private gateway or a transit gateway."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import CUSTOMER_GATEWAY, TRANSIT_GATEWAY, VPN_GATEWAY, described, require
from bedplate.rehearsal.kinds.described import VPN_CONNECTION as NOUN
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, beyond, together
from bedplate.rehearsal.kinds.vpn_tunnel_limits import (
    TUNNEL_CIDRS,
    TUNNEL_KEYS,
    TUNNEL_OPTIONS,
    TUNNEL_SETS,
    tunnel_complaints,
)
from bedplate.rehearsal.kinds.vpn_tunnel_logs import TUNNEL_LOGS, log_complaints, require_log_groups
from bedplate.rehearsal.kinds.vpn_tunnels import device_text, lay_tunnels
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
