"""`bedplate vpn tunnels` of a fleet two of whose sites are joined without AWS: keys on a disk, real keepers."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from bedplate.cli import run
from tests.support.direct_fleet import ATTIC, CELLAR, JOINS, LOFT, REGION, TEXT
from tests.support.gateway_tools import calls_of, site_gateway_at
from tests.support.page import told_blocks
from tests.support.pair_desk import begun_file, gateways_at, lose_credentials, secrets_on

NAMES = {ATTIC: "door.attic", CELLAR: "gate.cellar"}
PAIR = f"{ATTIC} and {CELLAR}"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    """Give the file of a fleet that has an authority, and of which nothing was made in AWS yet."""
    file = begun_file(tmp_path, TEXT)
    with mock_aws():
        yield file


@pytest.fixture
def gateways(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, which have their roles and no tunnel yet."""
    return gateways_at(tmp_path, NAMES, monkeypatch)


def _make_links() -> None:
    """Keep AWS's keys where `links` keeps them."""
    for number, site in enumerate(NAMES):
        told = {f"203.0.113.{10 * number + one}": f"a.key.{number}.{one}" for one in (1, 2)}
        name = f"rooms/tunnels/{site}/{REGION}"
        boto3.client("secretsmanager", REGION).create_secret(Name=name, SecretString=json.dumps(told))


def test_a_direct_tunnel_waits_for_nothing_of_aws(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before `links` is up it is brought to both, by one key of 384 bits; what is missing is named, with status 6."""
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) == 6

    told = capsys.readouterr()
    assert told.out.startswith(f"+ a key between {PAIR}\n")
    assert all(f"{name}: 1 tunnel, " in told.out for name in NAMES.values())
    assert all(f"there is no secret rooms/tunnels/{site}/{REGION}" in told.err for site in NAMES)
    keys = {site: secrets_on(gateway) for site, gateway in gateways.items()}
    assert keys[ATTIC].keys() == {"cellar-site"}
    assert set(keys[ATTIC].values()) == set(keys[CELLAR].values())
    assert {len(key) for key in keys[ATTIC].values()} == {96}


def test_tunnels_to_aws_come_beside_it(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Once `links` is up: all three on each, and BGP speaks through each."""
    run(["vpn", "tunnels", str(fleet)])
    _make_links()

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    capsys.readouterr()
    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert all(f"{name}: 3 tunnels, nothing to change" in capsys.readouterr().out for name in [NAMES[ATTIC]])
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        assert secrets_on(gateways[site]).keys() == {f"{REGION}-1", f"{REGION}-2", f"{other}-site"}
        assert "neighbor 169.254.64." in (gateways[site] / "etc/frr/frr.conf").read_text()


def test_a_connection_that_is_not_made_costs_the_other_sites_theirs_no_more(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A site's standing tunnels to a region stay, where those to another region are not made yet."""
    _make_links()
    run(["vpn", "tunnels", str(fleet)])
    more = TEXT.replace("regions:\n", "regions:\n  eu-north-1: {zones: [eu-north-1a]}\n")
    fleet.write_text(more, encoding="utf-8")
    assert run(["plan", str(fleet), "--write"]) == 0
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) == 6

    assert f"there is no secret rooms/tunnels/{ATTIC}/eu-north-1" in capsys.readouterr().err
    assert secrets_on(gateways[ATTIC]).keys() == {f"{REGION}-1", f"{REGION}-2", f"{CELLAR}-site"}


def test_without_credentials_gateways_keep_what_they_have(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway gets all its files or none: no gateway is reached, and the message names the credentials."""
    _make_links()
    run(["vpn", "tunnels", str(fleet)])
    before = {site: secrets_on(gateway) for site, gateway in gateways.items()}
    for gateway in gateways.values():
        calls_of(gateway)
    lose_credentials(monkeypatch)
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) != 0

    assert "credentials" in capsys.readouterr().err
    assert {site: secrets_on(gateway) for site, gateway in gateways.items()} == before
    assert not any(calls_of(gateway) for gateway in gateways.values())


def test_another_accounts_credentials_bring_nothing(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names both accounts; no key is read, and no gateway gets one."""
    _make_links()
    fleet.write_text(TEXT.replace('"123456789012"', '"111122223333"'), encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 2

    assert "the fleet file names account 111122223333" in capsys.readouterr().err
    assert not any(secrets_on(gateway) for gateway in gateways.values())


def test_sites_that_are_parted_lose_their_tunnel(fleet: Path, gateways: dict[str, Path]) -> None:
    """The next run takes it away at both, and what goes to AWS stays as it is."""
    _make_links()
    run(["vpn", "tunnels", str(fleet)])
    fleet.write_text(TEXT.replace(JOINS, ""), encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0

    for site, gateway in gateways.items():
        assert secrets_on(gateway).keys() == {f"{REGION}-1", f"{REGION}-2"}, site


def test_a_third_site_brings_a_key_for_each_pair(
    fleet: Path, gateways: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And changes none of those that there are."""
    run(["vpn", "tunnels", str(fleet)])
    before = secrets_on(gateways[ATTIC])
    fleet.write_text(TEXT + LOFT, encoding="utf-8")
    gateways["loft"] = site_gateway_at(tmp_path / "hosts/hatch.loft")
    capsys.readouterr()

    run(["vpn", "tunnels", str(fleet)])

    made = [line for line in capsys.readouterr().out.splitlines() if line.startswith("+")]
    assert made == ["+ a key between attic and loft", "+ a key between cellar and loft"]
    assert before.items() < secrets_on(gateways[ATTIC]).items()
    assert set(secrets_on(gateways["loft"])) == {"attic-site", "cellar-site"}


def test_the_page_about_joined_sites_is_followed(
    fleet: Path, gateways: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its order; `vpn init` is of docs/vpn.md as well and runs there, roles are applied on booted machines."""
    _, _, block = told_blocks("vpn-sites.md")
    begun, applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(fleet.parent)
    _make_links()

    statuses = {tuple(words): run(words) for words in others}

    assert (begun, applied) == (["vpn", "init"], ["node", "apply", *NAMES.values()])
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    told = capsys.readouterr().out
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        assert f"error: {NAMES[site]}: nothing is known of the tunnel {other}-site" in told
    again = ["vpn", "tunnels", "--new-keys"]
    assert run([*again, str(fleet)]) == 0
    assert f"+ a key between {PAIR}\n" in capsys.readouterr().out
