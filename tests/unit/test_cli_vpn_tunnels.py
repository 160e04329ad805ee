"""`bedplate vpn tunnels`, driven as an operator drives it: keys in a simulated account, a gateway's real keeper."""

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
from tests.support.declared import EXAMPLES, plan_of
from tests.support.gateway_shell import shell_to
from tests.support.gateway_tools import calls_of, site_gateway_at
from tests.support.page import ROOT, told_blocks
from tests.support.site_side import LAB

NAME = "gate.cellar"
REGIONS = [region.name for region in LAB.regions]
HOME = LAB.home.name
KEY = "a.key.that.AWS.made.up"
_HOLDING = """
import sys
from pathlib import Path
from bedplate.hold import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """Give the lab's file, in an account whose `links` was made."""
    file = tmp_path / "fleet.yaml"
    file.write_text((EXAMPLES / "lab.yaml").read_text().replace("111122223333", "123456789012"))
    with mock_aws():
        for number, region in enumerate(REGIONS):
            told = {f"203.0.113.{10 * number + one}": f"{KEY}.{number}.{one}" for one in (1, 2)}
            _secrets().create_secret(Name=f"lab/tunnels/cellar/{region}", SecretString=json.dumps(told))
        yield file


@pytest.fixture
def gate(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the site's gateway, which has its roles and no tunnel yet."""
    shell_to(tmp_path / "hosts", monkeypatch)
    return site_gateway_at(tmp_path / "hosts" / NAME)


def _secrets() -> "boto3.client":
    return boto3.client("secretsmanager", HOME)


def _change_key(region: str, key: str) -> None:
    told = {"203.0.113.1": key, "203.0.113.2": f"{KEY}.0.2"}
    _secrets().put_secret_value(SecretId=f"lab/tunnels/cellar/{region}", SecretString=json.dumps(told))


@pytest.mark.parametrize("engine", ["kernel", "daemon"])
def test_tunnels_are_carried_once(engine: str, lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys, connections, units and BGP, by who encrypts there; the second run changes nothing and says so."""
    if engine == "kernel":
        (gate / "kernel").touch()

    assert run(["vpn", "tunnels", str(lab)]) == 0
    first = capsys.readouterr().out
    calls_of(gate)
    assert run(["vpn", "tunnels", str(lab)]) == 0

    second = capsys.readouterr().out
    assert first.startswith(f"{NAME}: {2 * len(REGIONS)} tunnels, ")
    assert "files written" in first
    assert f"{NAME}: {2 * len(REGIONS)} tunnels, nothing to change" in second
    assert [call for call in calls_of(gate) if "enable" not in call] == []
    settings = list((gate / "etc/bedplate/ipsec").glob("*/swanctl.conf"))
    assert len(settings) == (1 if engine == "kernel" else 2 * len(REGIONS))
    assert sum(f"{KEY}".encode().hex() in each.read_text() for each in settings) == len(settings)
    assert {each.stat().st_mode & 0o777 for each in settings} == {0o600}
    assert "router bgp" in (gate / "etc/frr/frr.conf").read_text()


def test_the_page_about_sites_is_followed(
    lab: Path, gate: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command for sites, in its order; roles are for booted machines (tests/nodes), and no daemon runs here."""
    block, *_ = told_blocks("vpn-sites.md")
    applied, *others = (shlex.split(line)[1:] for line in block)
    monkeypatch.chdir(lab.parent)

    statuses = {tuple(words): run(words) for words in others}

    assert applied == ["node", "apply", NAME]
    assert statuses == {("vpn", "tunnels"): 0, ("vpn", "status"): 3}
    told = capsys.readouterr().out
    assert told.count(f"error: {NAME}: nothing is known of the tunnel ") == 2 * len(REGIONS)


def test_no_key_is_told_or_passed_as_an_argument(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither on the operator's screen nor to a program that everybody sees run."""
    assert run(["vpn", "tunnels", str(lab)]) == 0

    told = capsys.readouterr()
    said = told.out + told.err + (gate / "calls").read_text()
    assert KEY not in said
    assert KEY.encode().hex() not in said


def test_a_key_that_aws_changed_is_carried(lab: Path, gate: Path) -> None:
    """One charon's settings are another; the others are not told anything."""
    run(["vpn", "tunnels", str(lab)])
    calls_of(gate)
    _change_key(REGIONS[0], "another.key")

    assert run(["vpn", "tunnels", str(lab)]) == 0

    service = f"bedplate-ipsec-{REGIONS[0]}-1.service"
    assert b"another.key".hex() in (gate / f"etc/bedplate/ipsec/{REGIONS[0]}-1/swanctl.conf").read_text()
    assert [call for call in calls_of(gate) if "enable" not in call] == [f"systemctl try-reload-or-restart {service}"]


def test_one_key_for_two_tunnels_is_carried_nowhere(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, and both are named: whoever read it at one gateway could stand for another. The key is not told."""
    _change_key(REGIONS[0], f"{KEY}.1.2")

    assert run(["vpn", "tunnels", str(lab)]) == 6

    told = capsys.readouterr()
    first, second = f"cellar to 203.0.113.1 in {REGIONS[0]}", f"cellar to 203.0.113.12 in {REGIONS[1]}"
    assert f"tunnels have one key: {first} and {second}" in told.err
    assert KEY not in told.out + told.err
    assert not (gate / "etc/bedplate").exists()


def test_a_gateway_that_is_not_reached_is_named(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, and what to do."""
    shutil.move(gate, gate.with_name("away"))

    assert run(["vpn", "tunnels", str(lab)]) == 6

    told = capsys.readouterr().err
    assert f"{NAME}: not reached: ssh: connect to host {NAME} port 22" in told
    assert "`bedplate vpn tunnels` again" in told


def test_a_connection_that_was_not_made_yet_is_named(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, and nothing comes to lie on the gateway: half of its tunnels would be none of its plan."""
    _secrets().delete_secret(SecretId=f"lab/tunnels/cellar/{REGIONS[1]}", ForceDeleteWithoutRecovery=True)

    assert run(["vpn", "tunnels", str(lab)]) == 6

    told = capsys.readouterr().err
    assert f"{NAME}: there is no secret lab/tunnels/cellar/{REGIONS[1]}" in told
    assert "pulumi up -s lab.links" in told
    assert not (gate / "etc/bedplate").exists()


def test_a_gateway_that_refuses_keeps_what_it_has(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own words, and status 6."""
    (gate / "etc/systemd/system/bedplate-guard.service").unlink()

    assert run(["vpn", "tunnels", str(lab)]) == 6

    assert f"{NAME}: it refused, with status 2: there is no bedplate-guard.service here" in capsys.readouterr().err
    assert not (gate / "etc/bedplate").exists()


def test_a_kernel_that_answers_otherwise_changes_nothing_unasked(
    lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6 and the option that does it; with the option all charons are others."""
    run(["vpn", "tunnels", str(lab)])
    (gate / "kernel").touch()
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(lab)]) == 6
    told = capsys.readouterr().err
    words = ["vpn", "tunnels", "--change-engine"]
    assert run([*words, str(lab)]) == 0

    assert f"{NAME}: it refused, with status 2: charon encrypted here, and now the kernel would" in told
    assert "--change-engine does it" in told
    assert "do what it says" in told
    assert [each.parent.name for each in (gate / "etc/bedplate/ipsec").glob("*/swanctl.conf")] == ["tunnels"]


def test_another_account_is_asked_for_no_key(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Credentials of an account that the file does not name: both are told, and no gateway is reached."""
    lab.write_text(lab.read_text().replace("123456789012", "111122223333"))

    assert run(["vpn", "tunnels", str(lab)]) == 2

    assert "the fleet file names account 111122223333" in capsys.readouterr().err
    assert calls_of(gate) == []


def test_a_site_without_tunnels_is_told_to_take_its_own_away(
    lab: Path, gate: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan may hold a site that is joined to nothing any more; its gateway would dial for ever."""
    run(["vpn", "tunnels", str(lab)])
    monkeypatch.setattr("bedplate.cli.opening.planned", lambda _: replace(plan_of(lab), tunnels=()))
    capsys.readouterr()

    assert run(["vpn", "tunnels", str(lab)]) == 0

    assert f"{NAME}: 0 tunnels, " in capsys.readouterr().out
    assert not list((gate / "etc/bedplate/ipsec").iterdir())


def test_a_fleet_without_sites_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said what makes some."""
    file = Path(shutil.copy(EXAMPLES / "minimal.yaml", tmp_path / "fleet.yaml"))

    assert run(["vpn", "tunnels", str(file)]) == 2

    assert "the fleet has no tunnels" in capsys.readouterr().err


def test_of_two_at_once_one_wins(lab: Path, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever comes second is told who is at it, with status 5, and brings nothing: its plan may be the older."""
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
