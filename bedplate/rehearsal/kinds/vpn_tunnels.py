"""The two tunnels of a VPN connection as AWS would lay them out; moto tells the same fixed text of each.

What a program leaves out AWS picks at random: here it follows from the connection's id, the outside addresses out of
blocks that are kept for documentation.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from xml.etree.ElementTree import Element, SubElement, tostring

from bedplate.rehearsal.kind import Props

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
