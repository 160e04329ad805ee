"""Gateways of sites, pairs of gateways, and the guard: values that follow from the plan alone."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.plan import FleetPlan
from bedplate.spec.sites import Dials
from tests.conftest import Expect
from tests.testlab.fakes.daemons import read_settings
from tests.testlab.fleets.variants import SITE_SIDE_LAB, cellar, ends_of, with_gateways
from tests.testlab.keys.authority import KEYS, keyed, random_keys
from vpn.guard.guard import guard_text
from vpn.sites.aws import Peer, joined, opens, site_gateway
from vpn.sites.files import PRIVATE, STANDARD, connections_of, files_of
from vpn.sites.gateway import Gateway, Papers, Proof, SharedKey

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
    ends = {key: value for key, value in ends_of(SITE_SIDE_LAB).items() if key[1] != "us-east-1"}

    with pytest.raises(KeyError):
        site_gateway(SITE_SIDE_LAB, SITE_SIDE_LAB.sites[0], ends)


def test_the_guard_holds_what_lies_elsewhere_and_nothing_of_its_own() -> None:
    """Every block behind another gateway is guarded, the site's LAN and its laptops' pool are not."""
    gateway = cellar()

    own = set(gateway.blocks)
    assert set(gateway.elsewhere) == {
        *(region.block for region in SITE_SIDE_LAB.regions),
        SITE_SIDE_LAB.blocks["pool/us-west-2"],
    }
    assert own == {SITE_SIDE_LAB.sites[0].lan, SITE_SIDE_LAB.blocks["pool/cellar"]}
    text = guard_text(gateway.elsewhere, 1400)
    assert "10.64.0.0/15, 10.66.0.0/16, 10.121.0.0/22" in text
    assert not any(str(block) in text for block in own)


def test_a_fleet_of_one_place_has_a_guard_without_rules() -> None:
    """With nothing elsewhere there is nothing to guard, and the text is still one that replaces itself."""
    assert "drop" not in guard_text((), 1400)
    assert "delete table inet bedplate_guard" in guard_text((), 1400)


def test_keys_are_read_back() -> None:
    """Of 10,000 keys of random bytes, each is read back as it was by a reader of our own."""
    keys = random_keys(KEYS)

    secrets = read_settings(connections_of(keyed(keys), STANDARD).text)["secrets"]

    told = [bytes.fromhex(secrets[f"ike-t{number}"]["secret"].removeprefix("0x")) for number in range(KEYS)]
    assert told == keys


def _whole(gateway: Gateway) -> str:
    return "".join(f"===== {file.path} {file.mode:o}\n{file.text}" for file in files_of(gateway))


def _with_site(dials: Dials) -> FleetPlan:
    return with_gateways(SITE_SIDE_LAB, dials=dials)


def test_the_text_is_as_expected(expect: Expect) -> None:
    """Every file of the larger example's gateway is known to the letter."""
    expect("vpn/cellar.txt", _whole(cellar()))


def test_a_region_more_changes_nothing_of_the_others() -> None:
    """The connection of one tunnel is the same whether or not the site has tunnels to another region."""
    fewer = replace(SITE_SIDE_LAB, tunnels=tuple(one for one in SITE_SIDE_LAB.tunnels if one.region != "us-west-2"))
    whole, part = _connections(cellar()), _connections(cellar(fewer))

    assert part
    assert part.items() < whole.items()


def _connections(gateway: Gateway) -> dict[str, object]:
    files = {file.path.name: file.text for file in files_of(gateway)}
    return dict(read_settings(files["swanctl.conf"])["connections"])


def test_one_end_dials() -> None:
    """A gateway whose site dials opens its tunnels and keeps them open; one that AWS dials waits, and says so."""
    for dials, action, who in ((Dials.SITE, "start", "dials"), (Dials.AWS, "none", "waits")):
        files = {file.path.name: file.text for file in files_of(cellar(_with_site(dials)))}

        connections = read_settings(files["swanctl.conf"])["connections"]

        assert {one["children"][name]["start_action"] for name, one in connections.items()} == {action}
        assert {one["children"][name]["close_action"] for name, one in connections.items()} == {action}
        assert {line.split()[5] for line in files["table"].splitlines()} == {who}
        assert "/ipsec-watch /etc/bedplate/ipsec/tunnels/table" in files["bedplate-ipsec-tunnels-dial.service"]


def test_keys_are_for_root_alone() -> None:
    """A file that holds a key is for root to read, and no file shows its text, or a value its key, when printed."""
    gateway = cellar()
    keys = {each.proof.text for each in gateway.tunnels if isinstance(each.proof, SharedKey)}

    holding = [file for file in files_of(gateway) if any(key in file.text for key in keys)]

    assert len(holding) == 1
    assert len(keys) == len(gateway.tunnels)
    assert {file.mode for file in holding} == {PRIVATE}
    assert not any(key in repr((gateway, holding, ends_of(SITE_SIDE_LAB))) for key in (*keys, "key.of"))


def test_papers_lie_where_swanctl_looks() -> None:
    """Of certificates, each authority and each list is a file of its own, and all of them are demanded."""
    papers = Papers("mine\n", "key\n", ("issuing\n", "root\n"), ("issued\n", "authorities\n"))
    gateway = cellar()
    (first, *_) = gateway.tunnels
    files = {str(file.path): file for file in files_of(replace(gateway, tunnels=(replace(first, proof=papers),)))}

    folder = "/etc/bedplate/ipsec/tunnels"
    (connection,) = read_settings(files[f"{folder}/swanctl.conf"].text)["connections"].values()

    assert connection["remote"]["cacerts"] == "us-west-2-1-1.crt,us-west-2-1-2.crt"
    assert connection["remote"]["revocation"] == "strict"
    assert files[f"{folder}/x509ca/us-west-2-1-2.crt"].text == "root\n"
    assert files[f"{folder}/x509crl/us-west-2-1-2.crl"].text == "authorities\n"
    assert files[f"{folder}/private/us-west-2-1.key"].mode == PRIVATE
    assert not read_settings(files[f"{folder}/swanctl.conf"].text)["secrets"]


@pytest.mark.parametrize("secret", [b"", b"1", b"seven.7"], ids=["none", "one", "seven"])
def test_a_key_that_is_soon_guessed_is_refused(secret: bytes) -> None:
    """Fewer bytes than AWS takes itself; nothing of the key is told."""
    with pytest.raises(ValueError, match="fewer than 8 bytes") as caught:
        SharedKey(secret)

    assert "seven" not in str(caught.value)
    assert SharedKey(b"eight.ok").text == "0x65696768742e6f6b"


def test_a_charon_that_does_not_start_is_tried_until_it_does() -> None:
    """Or systemd gives up, for good, after five times within ten seconds."""
    (text,) = (file.text for file in files_of(cellar()) if "ExecStart=/usr/sbin/charon-systemd" in file.text)

    assert "\nRestart=always\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text


def test_no_tunnel_stands_without_its_guard() -> None:
    """Where the guard did not load at boot nothing may be led elsewhere, and so no charon starts."""
    texts = [file.text for file in files_of(cellar()) if "ExecStart=/usr/sbin/charon-systemd" in file.text]

    assert texts
    assert all("\nRequires=bedplate-guard.service\n" in text for text in texts)
    assert all(" bedplate-guard.service\n" in line for text in texts for line in _lines(text, "After="))


def _lines(text: str, start: str) -> list[str]:
    return [f"{line}\n" for line in text.splitlines() if line.startswith(start)]
