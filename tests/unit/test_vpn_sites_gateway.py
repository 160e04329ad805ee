"""A gateway's charons, pairs of gateways, and the guard: values that follow from the plan alone."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.support.site_side import LAB, cellar, ends_of
from vpn.guard.guard import guard_text, handover_text
from vpn.sites.aws import site_gateway
from vpn.sites.engine import Engine, engine_sentence, engine_told
from vpn.sites.files import handovers_of
from vpn.sites.gateway import Gateway, ports_of
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
    return {one.name: joined(one, REGIONS, _proof, Engine.KERNEL) for one in REGIONS}


def test_the_kernel_needs_one_charon_and_charon_one_a_tunnel() -> None:
    """Charon's own library knows packets by their selectors alone, and all tunnels take everything."""
    assert [one.name for one in cellar(Engine.KERNEL).charons] == ["tunnels"]
    assert [len(one.tunnels) for one in cellar(Engine.DAEMON).charons] == [1] * len(LAB.tunnels)


def test_ports_are_apart_and_stay() -> None:
    """No two charons share a port, and a tunnel that comes or goes moves no other's, but for a rare collision."""
    names = [f"region-{number}" for number in range(200)]
    ports = ports_of(names)

    assert len({port for both in ports.values() for port in both}) == 2 * len(names)
    assert all(1024 < port < 32768 for both in ports.values() for port in both)
    fewer = ports_of(names[:100])
    assert sum(fewer[name] != ports[name] for name in names[:100]) <= 2


def test_devices_have_names_that_linux_takes() -> None:
    """A device's name has 15 characters at most, begins as the guard expects, and is its tunnel's alone."""
    tunnels = [
        *cellar(Engine.KERNEL).tunnels,
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
        site_gateway(LAB, LAB.sites[0], ends, Engine.KERNEL)


def test_the_guard_holds_what_lies_elsewhere_and_nothing_of_its_own() -> None:
    """Every block behind another gateway is guarded, the site's LAN and its laptops' pool are not."""
    gateway = cellar(Engine.KERNEL)

    own = set(gateway.blocks)
    assert set(gateway.elsewhere) == {*(region.block for region in LAB.regions), LAB.blocks["pool/us-west-2"]}
    assert own == {LAB.sites[0].lan, LAB.blocks["pool/cellar"]}
    text = guard_text(gateway.elsewhere, 1400)
    assert "10.64.0.0/15, 10.66.0.0/16, 10.121.0.0/22" in text
    assert not any(str(block) in text for block in own)


def test_only_charons_on_other_ports_are_handed_packets() -> None:
    """Where the kernel encrypts, the ports of IKE are charon's own; else each peer's packets go to its charon."""
    assert "redirect" not in handover_text(handovers_of(cellar(Engine.KERNEL)))
    handed = handover_text(handovers_of(cellar(Engine.DAEMON)))
    for charon in cellar(Engine.DAEMON).charons:
        (tunnel,) = charon.tunnels
        assert f"ip saddr {tunnel.far.outside} udp dport 500 redirect to :{charon.ports[0]}" in handed
        assert f"ip daddr {tunnel.far.outside} udp sport {charon.ports[1]} masquerade to :4500" in handed


def test_a_fleet_of_one_place_has_a_guard_without_rules() -> None:
    """With nothing elsewhere there is nothing to guard, and the text is still one that replaces itself."""
    assert "drop" not in guard_text((), 1400)
    assert "delete table inet bedplate_guard" in guard_text((), 1400)


@pytest.mark.parametrize("answer", ["kernel\n", "daemon\n"])
def test_a_nodes_answer_names_its_engine(answer: str) -> None:
    """What a node answered to the probe is one of two words, and whoever sets it up is told what it means."""
    engine = engine_told(answer)

    assert engine.value == answer.strip()
    assert ("kernel encrypts" in engine_sentence(engine)) is (engine is Engine.KERNEL)


def test_no_answer_is_no_engine() -> None:
    """Silence of a node is not taken for either."""
    with pytest.raises(ValueError, match="not a valid"):
        engine_told("")
