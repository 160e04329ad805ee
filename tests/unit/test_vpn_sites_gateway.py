"""Gateways of sites, pairs of gateways, and the guard: values that follow from the plan alone."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.support.site_side import LAB, cellar, ends_of
from vpn.guard.guard import guard_text
from vpn.sites.aws import site_gateway
from vpn.sites.gateway import Gateway
from vpn.sites.pair import Peer, joined, opens
from vpn.sites.proof import Proof, SharedKey

REGIONS = tuple(
    Peer(
        name=name,
        identity=f"{name}.gateways.lab.internal",
        public=IPv4Address(f"203.0.113.{number}"),
        address=IPv4Address(f"10.{number}.0.9"),
        blocks=(IPv4Network(f"10.{number}.0.0/16"),),
    )
    for number, name in enumerate(("eu-north-1", "us-east-1", "us-west-2"), start=64)
)
SITE = replace(REGIONS[0], name="zoo", identity="zoo.gateways.lab.internal", calls=True)


def _proof(near: Peer, far: Peer) -> Proof:
    return SharedKey(b"one key of all")


def _gateways() -> dict[str, Gateway]:
    return {one.name: joined(one, REGIONS, _proof) for one in REGIONS}


def test_devices_have_names_that_linux_takes() -> None:
    """A device's name has 15 characters at most, begins as the guard expects, and is its tunnel's alone."""
    tunnels = [
        *cellar().tunnels,
        *(each for gateway in _gateways().values() for each in gateway.tunnels if gateway.name == "us-west-2"),
    ]

    assert len({each.device for each in tunnels}) == len(tunnels)
    assert all(len(each.device) <= 15 and each.device.startswith("ipsec") for each in tunnels)


def test_of_two_gateways_one_dials() -> None:
    """Each pair of gateways has a tunnel that exactly one of them opens, between the same addresses, by one name."""
    gateways = _gateways()

    for near in REGIONS:
        for tunnel in gateways[near.name].tunnels:
            (back,) = (one for one in gateways[tunnel.name].tunnels if one.name == near.name)
            assert tunnel.dials is not back.dials
            assert (tunnel.near, tunnel.far) == (back.far, back.near)


def test_who_stands_behind_translation_dials() -> None:
    """A site dials a region's gateway, whatever their names."""
    assert opens(SITE, REGIONS[1])
    assert not opens(REGIONS[1], SITE)


def test_two_of_one_identity_are_refused() -> None:
    """Gateways that call themselves the same could not be told apart."""
    with pytest.raises(ValueError, match="call themselves the same"):
        opens(SITE, replace(REGIONS[1], identity=SITE.identity))


def test_ends_that_aws_did_not_tell_are_missed() -> None:
    """A connection whose keys are not known is no gateway's, rather than a tunnel without a key."""
    ends = {key: value for key, value in ends_of(LAB).items() if key[1] != "us-east-1"}

    with pytest.raises(KeyError):
        site_gateway(LAB, LAB.sites[0], ends)


def test_the_guard_holds_what_lies_elsewhere_and_nothing_of_its_own() -> None:
    """Every block behind another gateway is guarded, the site's LAN and its laptops' pool are not."""
    gateway = cellar()

    own = set(gateway.blocks)
    assert set(gateway.elsewhere) == {*(region.block for region in LAB.regions), LAB.blocks["pool/us-west-2"]}
    assert own == {LAB.sites[0].lan, LAB.blocks["pool/cellar"]}
    text = guard_text(gateway.elsewhere, 1400)
    assert "10.64.0.0/15, 10.66.0.0/16, 10.121.0.0/22" in text
    assert not any(str(block) in text for block in own)


def test_a_fleet_of_one_place_has_a_guard_without_rules() -> None:
    """With nothing elsewhere there is nothing to guard, and the text is still one that replaces itself."""
    assert "drop" not in guard_text((), 1400)
    assert "delete table inet bedplate_guard" in guard_text((), 1400)
