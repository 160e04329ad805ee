"""Tunnels as AWS would lay them out."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from bedplate.rehearsal.kinds.vpn_tunnels import device_text, lay_tunnels

CONNECTIONS = [f"vpn-{number:017x}" for number in range(200)]
FIXED: dict[str, Any] = {
    "customerGatewayId": "cgw-1",
    "type": "ipsec.1",
    "tunnel1InsideCidr": "169.254.20.0/30",
    "tunnel1PresharedKey": "kept.as_given",
}


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_what_is_left_out_is_laid_within_awss_limits(connection: str) -> None:
    """Two tunnels have outside addresses of their own, /30s out of 169.254.0.0/16 and keys that AWS would take."""
    first, second = lay_tunnels(connection, {})

    assert first.address != second.address
    for tunnel in (first, second):
        assert tunnel.inside.prefixlen == 30
        assert tunnel.inside.subnet_of(IPv4Network("169.254.0.0/16"))
        assert len(tunnel.key) == 32
        assert tunnel.key.isalnum()
        assert "0" not in tunnel.key


def test_tunnels_are_laid_the_same_each_time() -> None:
    """A second look at a connection tells the same tunnels."""
    assert lay_tunnels("vpn-1", {}) == lay_tunnels("vpn-1", {})
    assert lay_tunnels("vpn-1", {}) != lay_tunnels("vpn-2", {})


def test_what_is_given_is_kept() -> None:
    """AWS's end has the first address inside, the customer's the second."""
    outputs = lay_tunnels("vpn-1", FIXED)[0].outputs(1, "64600")

    assert outputs["tunnel1VgwInsideAddress"] == "169.254.20.1"
    assert outputs["tunnel1CgwInsideAddress"] == "169.254.20.2"
    assert outputs["tunnel1PresharedKey"] == "kept.as_given"
    assert outputs["tunnel1BgpAsn"] == "64600"


def test_the_devices_text_holds_both_tunnels() -> None:
    """The XML for the device names both outside addresses and both keys."""
    tunnels = lay_tunnels("vpn-1", FIXED)

    text = device_text("vpn-1", FIXED, tunnels, "64600")

    assert all(str(tunnel.address) in text and tunnel.key in text for tunnel in tunnels)
