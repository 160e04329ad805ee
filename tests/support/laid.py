"""Gateways of the lab's cellar as they are sent to be laid, and what then lies on one of a test."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import site_gateway_at, tools_before
from tests.support.site_side import cellar
from vpn.keeper.place import Place
from vpn.keeper.shipment import Shipment, parse_shipment
from vpn.sites.carry import shipment_text
from vpn.sites.gateway import Gateway

SITE = cellar()
TOGETHER = "bedplate-ipsec-tunnels"
FIRST = "us-west-2-1"


def gateway_place(folder: Path, patch: pytest.MonkeyPatch) -> Place:
    """Make a gateway that has the role, and programs that write down what they are asked."""
    tools_before(folder / "tools", patch)
    root = site_gateway_at(folder / "gateway")
    patch.setenv("GATEWAY", str(root))
    return Place(memory=root / "var/lib/bedplate-vpn", root=root)


def shipment(gateway: Gateway) -> Shipment:
    """Return what is sent to a gateway."""
    found = parse_shipment(shipment_text(gateway))
    assert found
    return found


def without(gateway: Gateway, name: str) -> Gateway:
    """Return a gateway that has a tunnel less."""
    return replace(gateway, tunnels=tuple(one for one in gateway.tunnels if one.name != name))


def lying_in(place: Place) -> dict[str, tuple[str, int]]:
    """Return text and mode of each file on a gateway, by its path."""
    found = [each for each in place.root.rglob("*") if each.is_file()]
    return {f"/{each.relative_to(place.root)}": (each.read_text(), each.stat().st_mode & 0o777) for each in found}
