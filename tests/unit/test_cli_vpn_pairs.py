"""`bedplate vpn tunnels` for gateways that share a key, of two sites or two regions: what holds of both alike."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto import mock_aws

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support import direct_fleet, joined_fleet
from tests.support.gateway_tools import calls_of
from tests.support.pair_desk import all_secrets, begun_file, gateways_at
from vpn.pki_folder import folder_of


@dataclass(frozen=True)
class Kind:
    """Two gateways that share a key: the fleet's file, and the machines by their places."""

    text: str
    names: dict[str, str]


SITES = Kind(direct_fleet.TEXT, {direct_fleet.ATTIC: "door.attic", direct_fleet.CELLAR: "gate.cellar"})
REGIONS = Kind(joined_fleet.TEXT, {place: f"laptops.{place}" for place in sorted(joined_fleet.PUBLIC)})


@pytest.fixture(params=[SITES, REGIONS], ids=["sites", "regions"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Give one kind of pair after the other."""
    given = request.param
    assert isinstance(given, Kind)
    return given


@pytest.fixture
def fleet(kind: Kind, tmp_path: Path) -> Iterator[Path]:
    """Give the file of a fleet that has an authority, and of which nothing was made in AWS for sites."""
    file = begun_file(tmp_path, kind.text)
    if kind is REGIONS:
        record_doors(lock_path(file), "pair", joined_fleet.PUBLIC, {})
    with mock_aws():
        yield file


@pytest.fixture
def gateways(kind: Kind, fleet: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, which have their roles and no tunnel yet."""
    return gateways_at(fleet.parent, kind.names, monkeypatch)


def test_no_key_is_told_or_passed_as_an_argument(
    kind: Kind, fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither on the screen nor to a program that everybody sees run; where it is kept, only its owner reads it."""
    run(["vpn", "tunnels", str(fleet)])

    told = capsys.readouterr()
    said = told.out + told.err + "".join((each / "calls").read_text() for each in gateways.values())
    (key,) = all_secrets(gateways.values())
    assert key not in said
    (file,) = folder_of(fleet).keys.glob("tunnel.*")
    assert (file.name, file.stat().st_mode & 0o777) == (f"tunnel.{'.'.join(kind.names)}.pem", 0o600)
    for gateway in gateways.values():
        assert {each.stat().st_mode & 0o777 for each in gateway.glob("etc/bedplate/ipsec/*/swanctl.conf")} == {0o600}


def test_without_an_authority_it_is_said_what_makes_one(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and no gateway is reached: keys lie where the authority's do."""
    shutil.rmtree(folder_of(fleet).path)

    assert run(["vpn", "tunnels", str(fleet)]) == 2

    assert "`bedplate vpn init` makes one" in capsys.readouterr().err
    assert not any(calls_of(gateway) for gateway in gateways.values())
