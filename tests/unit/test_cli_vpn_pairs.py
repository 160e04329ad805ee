"""`bedplate vpn tunnels` for two gateways with a shared key, of sites and of regions alike."""

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from moto import mock_aws

from bedplate.cli import run
from bedplate.lock import lock_path, record_endpoints
from tests.testlab.fakes.gateway import calls_of
from tests.testlab.fleets import variants
from tests.testlab.fleets.variants import CONNECTED_REGIONS_TEXT, NORTH, PUBLIC, WEST
from tests.testlab.keys.operator import all_secrets, begun_file, gateways_at
from tests.testlab.run import documented_blocks
from vpn.pki import folder_of


@dataclass(frozen=True)
class Kind:
    """Two gateways that share a key: the fleet's file, and the machines by their places."""

    text: str
    names: dict[str, str]


SITES = Kind(variants.CONNECTED_SITES_TEXT, {variants.ATTIC: "door.attic", variants.CELLAR: "gate.cellar"})
REGIONS = Kind(variants.CONNECTED_REGIONS_TEXT, {place: f"laptops.{place}" for place in sorted(variants.PUBLIC)})


@pytest.fixture(params=[SITES, REGIONS], ids=["sites", "regions"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Run a test for sites and for regions."""
    parameter = request.param
    assert isinstance(parameter, Kind)
    return parameter


@pytest.fixture
def fleet(kind: Kind, tmp_path: Path) -> Iterator[Path]:
    """Return the file of a fleet with an authority, without deployed stacks."""
    file = begun_file(tmp_path, kind.text)
    if kind is REGIONS:
        record_endpoints(lock_path(file), "pair", variants.PUBLIC, {})
    with mock_aws():
        yield file


@pytest.fixture
def gateways(kind: Kind, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, without tunnels."""
    return gateways_at(fleet.parent, kind.names, monkeypatch)


def test_no_key_is_told_or_passed_as_an_argument(
    kind: Kind, fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys are neither printed nor visible in a process list, and only their owner can read the files."""
    run(["vpn", "tunnels", str(fleet)])

    output = capsys.readouterr()
    text = output.out + output.err + "".join((gateway / "calls").read_text() for gateway in gateways.values())
    (key,) = all_secrets(gateways.values())
    assert key not in text
    (file,) = folder_of(fleet).keys.glob("tunnel.*")
    assert (file.name, file.stat().st_mode & 0o777) == (f"tunnel.{'.'.join(kind.names)}.pem", 0o600)
    for gateway in gateways.values():
        assert {
            settings_file.stat().st_mode & 0o777 for settings_file in gateway.glob("etc/bedplate/ipsec/*/swanctl.conf")
        } == {0o600}


def test_without_an_authority_it_is_said_what_makes_one(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and no gateway is reached."""
    shutil.rmtree(folder_of(fleet).path)

    assert run(["vpn", "tunnels", str(fleet)]) == 2

    assert "`bedplate vpn init` creates one" in capsys.readouterr().err
    assert not any(calls_of(gateway) for gateway in gateways.values())


NAMES = {region: f"laptops.{region}" for region in (WEST, NORTH)}
PAIR = f"{NORTH} and {WEST}"


@pytest.fixture
def regions_fleet(tmp_path: Path) -> Path:
    """Return the file of a fleet with an authority and recorded gateway addresses."""
    file = begun_file(tmp_path, CONNECTED_REGIONS_TEXT)
    _record(file, PUBLIC)
    return file


@pytest.fixture
def regions_gateways(regions_fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, without tunnels."""
    return gateways_at(tmp_path, NAMES, monkeypatch)


def _record(file: Path, public: dict[str, IPv4Address]) -> None:
    record_endpoints(lock_path(file), "pair", public, {})


def test_both_ends_get_their_tunnel_once(
    regions_fleet: Path, regions_gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """One key of 384 bits, and routes to the networks behind the other; a second run changes nothing."""
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(regions_fleet)]) == 0
    first = capsys.readouterr().out
    assert run(["vpn", "tunnels", str(regions_fleet)]) == 0

    second = capsys.readouterr().out
    assert first.startswith(f"+ key of {PAIR}\n")
    assert all(f"{name}: 1 tunnel, no change" in second for name in NAMES.values())
    assert "+ a key" not in second
    (key,) = all_secrets(regions_gateways.values())
    assert len(key) == 96
    row = (regions_gateways[NORTH] / "etc/bedplate/ipsec/tunnels/table").read_text().split()
    assert (row[0], *row[2:]) == (WEST, "-", "1400", "10.64.0.0/16,10.121.0.0/22", "dials", "10.121.0.1")
    assert not (regions_gateways[NORTH] / "etc/frr/frr.conf").exists()


def test_the_page_about_regions_is_followed(
    regions_fleet: Path,
    regions_gateways: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command of the page, in its order, except those for booted machines."""
    _, block, *_ = documented_blocks("vpn-sites.md")
    recorded, begun, applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(regions_fleet.parent)

    statuses = {tuple(words): run(words) for words in others}

    assert (recorded, begun, applied) == (["vpn", "record"], ["vpn", "init"], ["node", "apply", *NAMES.values()])
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    output = capsys.readouterr().out
    assert all(f"error: {name}: state of tunnel " in output for name in NAMES.values())
    assert run(["check"]) == 0


def test_of_two_regions_one_dials_the_other_where_it_was_recorded(
    regions_fleet: Path, regions_gateways: dict[str, Path]
) -> None:
    """The first in the alphabet initiates; each uses the name of its machine."""
    run(["vpn", "tunnels", str(regions_fleet)])

    texts = {
        region: next(gateway.glob("etc/bedplate/ipsec/*/swanctl.conf")).read_text()
        for region, gateway in regions_gateways.items()
    }
    assert {region: "start_action = start" in text for region, text in texts.items()} == {WEST: False, NORTH: True}
    assert f"remote_addrs = {PUBLIC[WEST]}\n" in texts[NORTH]
    assert f"id = laptops.{WEST}.pair.internal\n" in texts[NORTH]


def test_new_keys_take_the_place_of_old_ones(
    regions_fleet: Path, regions_gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Daemons load them without a restart, and established tunnels stay up."""
    run(["vpn", "tunnels", str(regions_fleet)])
    before = all_secrets(regions_gateways.values())
    for gateway in regions_gateways.values():
        calls_of(gateway)
    capsys.readouterr()

    again = ["vpn", "tunnels", "--new-keys"]
    assert run([*again, str(regions_fleet)]) == 0

    assert f"+ key of {PAIR}\n" in capsys.readouterr().out
    after = all_secrets(regions_gateways.values())
    assert (len(after), before & after) == (1, set())
    for gateway in regions_gateways.values():
        calls = [call for call in calls_of(gateway) if "enable" not in call]
        assert calls == ["systemctl try-reload-or-restart bedplate-ipsec-tunnels.service"]


def test_a_gateway_whose_address_is_not_recorded_is_named(
    regions_fleet: Path, regions_gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, with the command that records it; the gateway gets no tunnel."""
    lock_path(regions_fleet).unlink()
    run(["plan", str(regions_fleet), "--write"])
    _record(regions_fleet, {WEST: PUBLIC[WEST]})

    assert run(["vpn", "tunnels", str(regions_fleet)]) == 6

    errors = capsys.readouterr().err
    assert f"{NAMES[WEST]}: fleet.lock has no public address of the gateway in {NORTH}" in errors
    assert "`bedplate vpn record`" in errors
    assert not any((gateway / "etc/bedplate").exists() for gateway in regions_gateways.values())


def test_a_gateway_that_is_not_reached_gets_its_key_by_the_next_run(
    regions_fleet: Path, regions_gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6; the next run sends the same key."""
    away = regions_gateways[WEST].with_name("away")
    shutil.move(regions_gateways[WEST], away)
    assert run(["vpn", "tunnels", str(regions_fleet)]) == 6
    assert f"{NAMES[WEST]}: no response on the SSH port" in capsys.readouterr().err
    shutil.move(away, regions_gateways[WEST])

    assert run(["vpn", "tunnels", str(regions_fleet)]) == 0

    assert len(all_secrets(regions_gateways.values())) == 1
    assert "+ a key" not in capsys.readouterr().out
