"""Gateways of sites and regions and the guard: values and files that follow from the plan."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import find_node
from bedplate.spec.sites import Dials
from roles.hardened.firewall import ruleset
from tests.conftest import Expect
from tests.testlab.fakes.daemons import read_settings
from tests.testlab.fleets.variants import LAB, LAB_PLAN, cellar_gateway, ends_of, with_gateways
from tests.testlab.keys.authority import KEYS, keyed, random_keys
from tests.testlab.rehearsal.programs import plan_of_text
from vpn.sites.files import PRIVATE, STANDARD, connections_of, files_of, guard_text
from vpn.sites.gateway import Gateway, Peer, Proof, SharedKey, TunnelCertificate, dials, full_mesh_gateway, site_gateway

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
    return {peer.name: full_mesh_gateway(peer, REGIONS, _proof) for peer in REGIONS}


def _connections(gateway: Gateway) -> dict[str, object]:
    files = {file.path.name: file.text for file in files_of(gateway)}
    return dict(read_settings(files["swanctl.conf"])["connections"])


def test_device_names_are_valid_and_unique() -> None:
    """A device's name has at most 15 characters and the prefix that the guard matches."""
    tunnels = [*cellar_gateway().tunnels, *_gateways()["us-west-2"].tunnels]

    assert len({tunnel.device for tunnel in tunnels}) == len(tunnels)
    assert all(len(tunnel.device) <= 15 and tunnel.device.startswith("ipsec") for tunnel in tunnels)


def test_exactly_one_of_two_gateways_dials() -> None:
    """Both ends of each pair have a tunnel with the same addresses."""
    gateways = _gateways()

    for near in REGIONS:
        for tunnel in gateways[near.name].tunnels:
            (back,) = (other for other in gateways[tunnel.name].tunnels if other.name == near.name)
            assert tunnel.dials is not back.dials
            assert (tunnel.near, tunnel.far) == (back.far, back.near)


def test_a_gateway_behind_nat_dials() -> None:
    """A site dials a region's gateway, whatever their names are."""
    assert dials(SITE, REGIONS[1])
    assert not dials(REGIONS[1], SITE)


def test_two_gateways_with_one_identity_are_rejected() -> None:
    """The ends of their tunnel could not be distinguished."""
    with pytest.raises(ValueError, match="have the same name or IKE identity"):
        dials(SITE, replace(REGIONS[1], identity=SITE.identity))


def test_a_connection_without_aws_keys_is_an_error() -> None:
    """No tunnel is rendered without a key."""
    ends = {key: value for key, value in ends_of(LAB_PLAN).items() if key[1] != "us-east-1"}

    with pytest.raises(KeyError):
        site_gateway(LAB_PLAN, LAB_PLAN.sites[0], ends)


def test_the_guard_covers_remote_blocks_and_no_local_ones() -> None:
    """Every block behind another gateway is guarded; the site's LAN and its laptop pool are not."""
    gateway = cellar_gateway()

    local = set(gateway.blocks)
    assert set(gateway.remote_blocks) == {
        *(region.block for region in LAB_PLAN.regions),
        *(LAB_PLAN.blocks[path] for path in ("pool/us-west-2", "pods", "services")),
    }
    assert local == {LAB_PLAN.sites[0].networks["cellar"], LAB_PLAN.blocks["pool/cellar"]}
    text = guard_text(gateway.remote_blocks, 1400)
    assert "10.64.0.0/15, 10.66.0.0/16, 10.112.0.0/13, 10.120.0.0/20, 10.121.0.0/22" in text
    assert not any(str(block) in text for block in local)


def test_a_gateway_that_is_a_worker_reaches_pods_itself() -> None:
    """It accepts no route to them from AWS, and translates the senders of packets to pods, as the pods router does."""
    text = LAB.read_text().replace("gate: {address: 192.168.40.1}", "gate: {address: 192.168.40.1, use: kubernetes}")
    plan = plan_of_text(text)
    own = {plan.blocks[name] for name in ("pods", "services")}
    node = find_node(plan, "gate.cellar", load_catalog())

    for tunnel in cellar_gateway(plan).tunnels:
        assert plan.regions[0].block in tunnel.carries
        assert own.isdisjoint({*tunnel.carries, *tunnel.preferred})
    assert f"ip daddr {plan.blocks['pods']} masquerade" in ruleset(node.firewall_rules, node.roles)


def test_the_guard_of_a_fleet_with_one_place_has_no_rules() -> None:
    """Without remote blocks the text still replaces an older table."""
    assert "drop" not in guard_text((), 1400)
    assert "delete table inet bedplate_guard" in guard_text((), 1400)


def test_keys_of_random_bytes_survive_swanctl_conf() -> None:
    """Another parser reads back 10,000 keys as they were."""
    keys = random_keys(KEYS)

    secrets = read_settings(connections_of(keyed(keys), STANDARD).text)["secrets"]

    parsed = [bytes.fromhex(secrets[f"ike-t{number}"]["secret"].removeprefix("0x")) for number in range(KEYS)]
    assert parsed == keys


def _with_site(dials: Dials) -> FleetPlan:
    return with_gateways(LAB_PLAN, dials=dials)


def test_all_files_of_a_site_gateway(expect: Expect) -> None:
    """Every file of the larger example's gateway has the expected text."""
    text = "".join(f"===== {file.path} {file.mode:o}\n{file.text}" for file in files_of(cellar_gateway()))

    expect("vpn/cellar.txt", text)


def test_another_region_does_not_change_other_connections() -> None:
    """A tunnel's connection is the same with and without tunnels to another region."""
    tunnels = tuple(tunnel for tunnel in LAB_PLAN.tunnels if tunnel.region != "us-west-2")
    with_all, with_fewer = (
        _connections(cellar_gateway()),
        _connections(cellar_gateway(replace(LAB_PLAN, tunnels=tunnels))),
    )

    assert with_fewer
    assert with_fewer.items() < with_all.items()


def test_the_end_that_dials_starts_its_tunnels() -> None:
    """It also restarts them; an end that AWS dials waits."""
    for end, action, role in ((Dials.SITE, "start", "dials"), (Dials.AWS, "none", "waits")):
        files = {file.path.name: file.text for file in files_of(cellar_gateway(_with_site(end)))}

        connections = read_settings(files["swanctl.conf"])["connections"]

        children = [connection["children"][name] for name, connection in connections.items()]
        assert {child["start_action"] for child in children} == {action}
        assert {child["close_action"] for child in children} == {action}
        assert {line.split()[5] for line in files["table"].splitlines()} == {role}
        assert "/ipsec-watch /etc/bedplate/ipsec/tunnels/table" in files["bedplate-ipsec-tunnels-dial.service"]


def test_only_root_can_read_keys() -> None:
    """One file with mode 0600 holds the keys, and no repr shows them."""
    gateway = cellar_gateway()
    keys = {tunnel.proof.text for tunnel in gateway.tunnels if isinstance(tunnel.proof, SharedKey)}

    with_keys = [file for file in files_of(gateway) if any(key in file.text for key in keys)]

    assert len(with_keys) == 1
    assert len(keys) == len(gateway.tunnels)
    assert {file.mode for file in with_keys} == {PRIVATE}
    assert not any(key in repr((gateway, with_keys, ends_of(LAB_PLAN))) for key in (*keys, "key.of"))


def test_certificates_are_in_the_folders_that_swanctl_loads() -> None:
    """Each authority and each revocation list has its own file, and the connection requires all of them."""
    certificate = TunnelCertificate("mine\n", "key\n", ("issuing\n", "root\n"), ("issued\n", "authorities\n"))
    gateway = cellar_gateway()
    (first, *_) = gateway.tunnels
    files = {str(file.path): file for file in files_of(replace(gateway, tunnels=(replace(first, proof=certificate),)))}

    folder = "/etc/bedplate/ipsec/tunnels"
    (connection,) = read_settings(files[f"{folder}/swanctl.conf"].text)["connections"].values()

    assert connection["remote"]["cacerts"] == "us-west-2-1-1.crt,us-west-2-1-2.crt"
    assert connection["remote"]["revocation"] == "strict"
    assert files[f"{folder}/x509ca/us-west-2-1-2.crt"].text == "root\n"
    assert files[f"{folder}/x509crl/us-west-2-1-2.crl"].text == "authorities\n"
    assert files[f"{folder}/private/us-west-2-1.key"].mode == PRIVATE
    assert not read_settings(files[f"{folder}/swanctl.conf"].text)["secrets"]


@pytest.mark.parametrize("secret", [b"", b"1", b"seven.7"], ids=["none", "one", "seven"])
def test_a_short_key_is_rejected(secret: bytes) -> None:
    """AWS requires at least 8 bytes too; the error does not show the key."""
    with pytest.raises(ValueError, match="at least 8 required") as error:
        SharedKey(secret)

    assert "seven" not in str(error.value)
    assert SharedKey(b"eight.ok").text == "0x65696768742e6f6b"


def _charon_unit() -> str:
    (text,) = (file.text for file in files_of(cellar_gateway()) if "ExecStart=/usr/sbin/charon-systemd" in file.text)
    return text


def test_charon_is_restarted_without_limit() -> None:
    """By default systemd gives up after five starts within ten seconds."""
    unit = _charon_unit()

    assert "\nRestart=always\n" in unit
    assert "\nStartLimitIntervalSec=0\n" in unit


def test_charon_requires_the_guard() -> None:
    """If the guard does not load at boot, charon does not start."""
    unit = _charon_unit()

    (after,) = (line for line in unit.splitlines() if line.startswith("After="))
    assert "\nRequires=bedplate-guard.service\n" in unit
    assert after.endswith(" bedplate-guard.service")
