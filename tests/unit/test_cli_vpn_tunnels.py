"""`bedplate vpn tunnels`: keys in a simulated account, and real gateway agents."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from bedplate.cli import run
from tests.testlab.fakes.gateway import calls_of, shell_to, site_gateway_at
from tests.testlab.fleets.variants import ATTIC, CELLAR, CONNECTED_SITES_TEXT, JOINS, LAB_PLAN, REGION, THIRD_SITE_TEXT
from tests.testlab.keys.operator import begun_file, gateways_at, lose_credentials, secrets_on
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import ROOT, documented_blocks

NAME = "gate.cellar"
REGIONS = [region.name for region in LAB_PLAN.regions]
HOME = LAB_PLAN.home.name
KEY = "a.key.that.AWS.made.up"
_HOLDING = """
import sys
from pathlib import Path
from bedplate.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """Return the lab's file, with the stack `links` deployed."""
    file = tmp_path / "fleet.yaml"
    file.write_text((EXAMPLES / "lab.yaml").read_text().replace("111122223333", "123456789012"))
    with mock_aws():
        for number, region in enumerate(REGIONS):
            tunnel_keys = {f"203.0.113.{10 * number + tunnel}": f"{KEY}.{number}.{tunnel}" for tunnel in (1, 2)}
            _secrets().create_secret(Name=f"lab/tunnels/cellar/{region}", SecretString=json.dumps(tunnel_keys))
        yield file


@pytest.fixture
def gate(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the site's gateway, without tunnels."""
    shell_to(tmp_path / "hosts", monkeypatch)
    return site_gateway_at(tmp_path / "hosts" / NAME)


def _secrets() -> "boto3.client":
    return boto3.client("secretsmanager", HOME)


def _change_key(region: str, key: str) -> None:
    tunnel_keys = {"203.0.113.1": key, "203.0.113.2": f"{KEY}.0.2"}
    _secrets().put_secret_value(SecretId=f"lab/tunnels/cellar/{region}", SecretString=json.dumps(tunnel_keys))


def test_tunnels_are_carried_once(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys, connections, units and BGP are sent; a second run changes nothing."""
    assert run(["vpn", "tunnels", str(lab)]) == 0
    first = capsys.readouterr().out
    calls_of(gate)
    assert run(["vpn", "tunnels", str(lab)]) == 0

    second = capsys.readouterr().out
    assert first.startswith(f"{NAME}: {2 * len(REGIONS)} tunnels, ")
    assert "files written" in first
    assert f"{NAME}: {2 * len(REGIONS)} tunnels, no change" in second
    assert [call for call in calls_of(gate) if "enable" not in call] == []
    settings = gate / "etc/bedplate/ipsec/tunnels/swanctl.conf"
    assert KEY.encode().hex() in settings.read_text()
    assert settings.stat().st_mode & 0o777 == 0o600
    assert "router bgp" in (gate / "etc/frr/frr.conf").read_text()


def test_the_page_about_sites_is_followed(
    lab: Path, gate: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command of the page, in its order, except those for booted machines."""
    block, *_ = documented_blocks("vpn-sites.md")
    recorded, applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(lab.parent)

    statuses = {tuple(words): run(words) for words in others}

    assert (recorded, applied) == (["vpn", "record"], ["node", "apply", NAME])
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    output = capsys.readouterr().out
    assert output.count(f"error: {NAME}: state of tunnel ") == 2 * len(REGIONS)


def test_no_key_is_told_or_passed_as_an_argument(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are neither printed nor visible in a process list."""
    assert run(["vpn", "tunnels", str(lab)]) == 0

    output = capsys.readouterr()
    text = output.out + output.err + (gate / "calls").read_text()
    assert KEY not in text
    assert KEY.encode().hex() not in text


def test_a_key_that_aws_changed_is_carried(lab: Path, gate: Path) -> None:
    """Charon loads it without a restart."""
    run(["vpn", "tunnels", str(lab)])
    calls_of(gate)
    _change_key(REGIONS[0], "another.key")

    assert run(["vpn", "tunnels", str(lab)]) == 0

    assert b"another.key".hex() in (gate / "etc/bedplate/ipsec/tunnels/swanctl.conf").read_text()
    calls = [call for call in calls_of(gate) if "enable" not in call]
    assert calls == ["systemctl try-reload-or-restart bedplate-ipsec-tunnels.service"]


def test_one_key_for_two_tunnels_is_carried_nowhere(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, and both tunnels are named: with one key, a gateway could impersonate the other."""
    _change_key(REGIONS[0], f"{KEY}.1.2")

    assert run(["vpn", "tunnels", str(lab)]) == 6

    output = capsys.readouterr()
    first, second = f"cellar to 203.0.113.1 in {REGIONS[0]}", f"cellar to 203.0.113.12 in {REGIONS[1]}"
    assert f"tunnels share a key: {first} and {second}" in output.err
    assert KEY not in output.out + output.err
    assert not (gate / "etc/bedplate").exists()


def test_a_gateway_that_is_not_reached_is_named(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, with a fix."""
    shutil.move(gate, gate.with_name("away"))

    assert run(["vpn", "tunnels", str(lab)]) == 6

    errors = capsys.readouterr().err
    assert f"{NAME}: no response on the SSH port" in errors
    assert "`bedplate vpn tunnels` again" in errors


def test_a_connection_that_was_not_made_yet_is_named(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, and the gateway gets no files."""
    _secrets().delete_secret(SecretId=f"lab/tunnels/cellar/{REGIONS[1]}", ForceDeleteWithoutRecovery=True)

    assert run(["vpn", "tunnels", str(lab)]) == 6

    errors = capsys.readouterr().err
    assert f"{NAME}: no secret lab/tunnels/cellar/{REGIONS[1]}" in errors
    assert "bedplate up --stack links" in errors
    assert not (gate / "etc/bedplate").exists()


def test_a_gateway_that_refuses_keeps_what_it_has(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, with the gateway's message."""
    (gate / "etc/systemd/system/bedplate-guard.service").unlink()

    assert run(["vpn", "tunnels", str(lab)]) == 6

    assert f"{NAME}: no bedplate-guard.service on this gateway" in capsys.readouterr().err
    assert not (gate / "etc/bedplate").exists()


def test_another_account_is_asked_for_no_key(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names both accounts, and no gateway is reached."""
    lab.write_text(lab.read_text().replace("123456789012", "111122223333"))

    assert run(["vpn", "tunnels", str(lab)]) == 2

    assert "the fleet file has account 111122223333" in capsys.readouterr().err
    assert calls_of(gate) == []


def test_a_site_without_tunnels_is_told_to_take_its_own_away(
    lab: Path, gate: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site can lose its last tunnel; its gateway must remove it."""
    run(["vpn", "tunnels", str(lab)])
    monkeypatch.setattr("bedplate.operate.plan_loaded", lambda _: replace(plan_of(lab), tunnels=()))
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(lab)]) == 0

    assert f"{NAME}: 0 tunnels, " in capsys.readouterr().out
    assert not list((gate / "etc/bedplate/ipsec").iterdir())


def test_a_fleet_without_sites_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the sections that create tunnels."""
    file = Path(shutil.copy(EXAMPLES / "minimal.yaml", tmp_path / "fleet.yaml"))

    assert run(["vpn", "tunnels", str(file)]) == 2

    assert "the fleet has no tunnels" in capsys.readouterr().err


def test_of_two_at_once_one_wins(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second command gets status 5 and the name of the first: its plan could be older."""
    command = [sys.executable, "-c", _HOLDING, str(lab.with_suffix(".tunnels"))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout
        first.stdout.readline()
        status = run(["vpn", "tunnels", str(lab)])
        first.communicate()

    assert status == 5
    assert f"process {first.pid}" in capsys.readouterr().err
    assert calls_of(gate) == []
    assert run(["vpn", "tunnels", str(lab)]) == 0


NAMES = {ATTIC: "door.attic", CELLAR: "gate.cellar"}
PAIR = f"{ATTIC} and {CELLAR}"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    """Return the file of a fleet with an authority, without deployed stacks."""
    file = begun_file(tmp_path, CONNECTED_SITES_TEXT)
    with mock_aws():
        yield file


@pytest.fixture
def gateways(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the folders of both gateways, without tunnels."""
    return gateways_at(tmp_path, NAMES, monkeypatch)


def _make_links() -> None:
    """Create AWS's keys as the stack `links` does."""
    for number, site in enumerate(NAMES):
        tunnel_keys = {f"203.0.113.{10 * number + tunnel}": f"a.key.{number}.{tunnel}" for tunnel in (1, 2)}
        name = f"rooms/tunnels/{site}/{REGION}"
        boto3.client("secretsmanager", REGION).create_secret(Name=name, SecretString=json.dumps(tunnel_keys))


def test_a_direct_tunnel_waits_for_nothing_of_aws(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before `links` is deployed both get the tunnel, with a key of 384 bits; missing tunnels are status 6."""
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) == 6

    output = capsys.readouterr()
    assert output.out.startswith(f"+ key of {PAIR}\n")
    assert all(f"{name}: 1 tunnel, " in output.out for name in NAMES.values())
    assert all(f"no secret rooms/tunnels/{site}/{REGION}" in output.err for site in NAMES)
    keys = {site: secrets_on(gateway) for site, gateway in gateways.items()}
    assert keys[ATTIC].keys() == {"cellar-site"}
    assert set(keys[ATTIC].values()) == set(keys[CELLAR].values())
    assert {len(key) for key in keys[ATTIC].values()} == {96}


def test_tunnels_to_aws_come_beside_it(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """After `links` is deployed each has three tunnels, and BGP over each."""
    run(["vpn", "tunnels", str(fleet)])
    _make_links()

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    capsys.readouterr()
    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert all(f"{name}: 3 tunnels, no change" in capsys.readouterr().out for name in [NAMES[ATTIC]])
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        assert secrets_on(gateways[site]).keys() == {f"{REGION}-1", f"{REGION}-2", f"{other}-site"}
        assert "neighbor 169.254.64." in (gateways[site] / "etc/frr/frr.conf").read_text()


def test_a_connection_that_is_not_made_costs_the_other_sites_theirs_no_more(
    fleet: Path, gateways: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Existing tunnels to a region stay while those to another are missing."""
    _make_links()
    run(["vpn", "tunnels", str(fleet)])
    more = CONNECTED_SITES_TEXT.replace("regions:\n", "regions:\n  eu-north-1: {zones: [eu-north-1a]}\n")
    fleet.write_text(more, encoding="utf-8")
    assert run(["plan", str(fleet), "--write"]) == 0
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(fleet)]) == 6

    assert f"no secret rooms/tunnels/{ATTIC}/eu-north-1" in capsys.readouterr().err
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
    fleet.write_text(CONNECTED_SITES_TEXT.replace('"123456789012"', '"111122223333"'), encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 2

    assert "the fleet file has account 111122223333" in capsys.readouterr().err
    assert not any(secrets_on(gateway) for gateway in gateways.values())


def test_sites_that_are_parted_lose_their_tunnel(fleet: Path, gateways: dict[str, Path]) -> None:
    """The next run removes it at both sites, and tunnels to AWS stay."""
    _make_links()
    run(["vpn", "tunnels", str(fleet)])
    fleet.write_text(CONNECTED_SITES_TEXT.replace(JOINS, ""), encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0

    for site, gateway in gateways.items():
        assert secrets_on(gateway).keys() == {f"{REGION}-1", f"{REGION}-2"}, site


def test_a_third_site_brings_a_key_for_each_pair(
    fleet: Path, gateways: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Existing keys do not change."""
    run(["vpn", "tunnels", str(fleet)])
    before = secrets_on(gateways[ATTIC])
    fleet.write_text(CONNECTED_SITES_TEXT + THIRD_SITE_TEXT, encoding="utf-8")
    gateways["loft"] = site_gateway_at(tmp_path / "hosts/hatch.loft")
    capsys.readouterr()

    run(["vpn", "tunnels", str(fleet)])

    key_lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("+")]
    assert key_lines == ["+ key of attic and loft", "+ key of cellar and loft"]
    assert before.items() < secrets_on(gateways[ATTIC]).items()
    assert set(secrets_on(gateways["loft"])) == {"attic-site", "cellar-site"}


def test_the_page_about_joined_sites_is_followed(
    fleet: Path, gateways: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command of the page, in its order, except those for booted machines."""
    _, _, block = documented_blocks("vpn-sites.md")
    begun, applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(fleet.parent)
    _make_links()

    statuses = {tuple(words): run(words) for words in others}

    assert (begun, applied) == (["vpn", "init"], ["node", "apply", *NAMES.values()])
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    output = capsys.readouterr().out
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        assert f"error: {NAMES[site]}: state of tunnel {other}-site unknown" in output
    again = ["vpn", "tunnels", "--new-keys"]
    assert run([*again, str(fleet)]) == 0
    assert f"+ key of {PAIR}\n" in capsys.readouterr().out
