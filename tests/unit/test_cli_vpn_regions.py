"""`bedplate vpn tunnels` of a fleet whose gateways join its regions: keys on a disk, gateways' real keepers."""

import shlex
import shutil
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support.gateway_tools import calls_of
from tests.support.joined_fleet import NORTH, PUBLIC, TEXT, WEST
from tests.support.page import told_blocks
from tests.support.pair_desk import all_secrets, begun_file, gateways_at

NAMES = {region: f"laptops.{region}" for region in (WEST, NORTH)}
PAIR = f"{NORTH} and {WEST}"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Return the file of a fleet that has an authority and whose gateways' addresses are recorded."""
    file = begun_file(tmp_path, TEXT)
    _record(file, PUBLIC)
    return file


@pytest.fixture
def gateways(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, which have their roles and no tunnel yet."""
    return gateways_at(tmp_path, NAMES, monkeypatch)


def _record(file: Path, public: dict[str, IPv4Address]) -> None:
    record_doors(lock_path(file), "pair", public, {})


def test_both_ends_get_their_tunnel_once(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """One key between the two, 384 bits long, and routes to what lies behind the other; again, nothing changes."""
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    first = capsys.readouterr().out
    assert run(["vpn", "tunnels", str(fleet)]) == 0

    second = capsys.readouterr().out
    assert first.startswith(f"+ a key between {PAIR}\n")
    assert all(f"{name}: 1 tunnel, nothing to change" in second for name in NAMES.values())
    assert "+ a key" not in second
    (key,) = all_secrets(gateways.values())
    assert len(key) == 96
    row = (gateways[NORTH] / "etc/bedplate/ipsec/tunnels/table").read_text().split()
    assert (row[0], *row[2:]) == (WEST, "-", "1400", "10.64.0.0/16,10.121.0.0/22", "dials", "10.121.0.1")
    assert not (gateways[NORTH] / "etc/frr/frr.conf").exists()


def test_the_page_about_regions_is_followed(
    fleet: Path, gateways: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its order; the first two are of docs/vpn.md as well and run there, roles are applied on booted machines."""
    _, block, *_ = told_blocks("vpn-sites.md")
    recorded, begun, applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(fleet.parent)

    statuses = {tuple(words): run(words) for words in others}

    assert (recorded, begun, applied) == (["vpn", "record"], ["vpn", "init"], ["node", "apply", *NAMES.values()])
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    told = capsys.readouterr().out
    assert all(f"error: {name}: nothing is known of the tunnel " in told for name in NAMES.values())
    assert run(["check"]) == 0


def test_of_two_regions_one_dials_the_other_where_it_was_recorded(fleet: Path, gateways: dict[str, Path]) -> None:
    """The first in the alphabet; each under the name of its machine."""
    run(["vpn", "tunnels", str(fleet)])

    texts = {
        region: next(gateway.glob("etc/bedplate/ipsec/*/swanctl.conf")).read_text()
        for region, gateway in gateways.items()
    }
    assert {region: "start_action = start" in text for region, text in texts.items()} == {WEST: False, NORTH: True}
    assert f"remote_addrs = {PUBLIC[WEST]}\n" in texts[NORTH]
    assert f"id = laptops.{WEST}.pair.internal\n" in texts[NORTH]


def test_new_keys_take_the_place_of_old_ones(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ends read them as they run, and no tunnel that stands is taken down."""
    run(["vpn", "tunnels", str(fleet)])
    before = all_secrets(gateways.values())
    for gateway in gateways.values():
        calls_of(gateway)
    capsys.readouterr()

    again = ["vpn", "tunnels", "--new-keys"]
    assert run([*again, str(fleet)]) == 0

    assert f"+ a key between {PAIR}\n" in capsys.readouterr().out
    after = all_secrets(gateways.values())
    assert (len(after), before & after) == (1, set())
    for gateway in gateways.values():
        told = [call for call in calls_of(gateway) if "enable" not in call]
        assert told == ["systemctl try-reload-or-restart bedplate-ipsec-tunnels.service"]


def test_a_gateway_whose_address_is_not_recorded_is_named(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the command that records it, and status 6: nobody could dial it, and it comes to have no tunnel either."""
    lock_path(fleet).unlink()
    run(["plan", str(fleet), "--write"])
    _record(fleet, {WEST: PUBLIC[WEST]})

    assert run(["vpn", "tunnels", str(fleet)]) == 6

    told = capsys.readouterr().err
    assert f"{NAMES[WEST]}: fleet.lock does not say at which address the gateway in {NORTH} is dialled" in told
    assert "`bedplate vpn record`" in told
    assert not any((gateway / "etc/bedplate").exists() for gateway in gateways.values())


def test_a_gateway_that_is_not_reached_gets_its_key_by_the_next_run(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, and the key that was made stays: the run after it makes no other."""
    away = gateways[WEST].with_name("away")
    shutil.move(gateways[WEST], away)
    assert run(["vpn", "tunnels", str(fleet)]) == 6
    assert f"{NAMES[WEST]}: not reached" in capsys.readouterr().err
    shutil.move(away, gateways[WEST])

    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert len(all_secrets(gateways.values())) == 1
    assert "+ a key" not in capsys.readouterr().out
