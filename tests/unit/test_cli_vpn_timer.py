"""`bedplate vpn timer`: units that systemd reads, and whose command renews what is due."""

import shlex
import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support.declared import EXAMPLES
from tests.support.gateway_shell import shell_to
from tests.support.laptop_keys import moment
from tests.support.laptop_plans import HOME, PUBLIC, RESOLVERS
from tests.support.needs import need_program
from vpn.pki_folder import folder_of
from vpn.revocation import number_of, read_lists

SERVICE, TIMER = "bedplate-vpn-lab.service", "bedplate-vpn-lab.timer"
HOSTS = ("laptops.us-west-2", "gate.cellar")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return a copy of the lab's file in a folder whose name systemd would read otherwise than it is written."""
    folder = tmp_path / "my $HOME 100% fleet"
    folder.mkdir()
    file = Path(shutil.copy(EXAMPLES / "lab.yaml", folder / "fleet.yaml"))
    record_doors(lock_path(file), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    return file


@pytest.fixture
def gateways(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of both gateways, of an authority that began 46 days ago and has signed nothing since."""
    need_program("openssl")
    _at(moment() - timedelta(days=46), monkeypatch)
    assert run(["vpn", "init", str(lab)]) == 0
    _at(moment(), monkeypatch)
    for host in HOSTS:
        (tmp_path / "hosts" / host).mkdir(parents=True)
        shutil.copy(folder_of(lab).authority, tmp_path / "hosts" / host / "ca.crt")
    shell_to(tmp_path / "hosts", monkeypatch)
    return tmp_path / "hosts"


def _at(now: datetime, patch: pytest.MonkeyPatch) -> None:
    for command in ("vpn_init", "vpn_sync", "vpn_gateways"):
        patch.setattr(f"bedplate.cli.{command}.now", lambda: now)


def _units(lab: Path, folder: Path, *more: str) -> dict[str, str]:
    assert run(["vpn", "timer", str(lab), "--write", str(folder), *more]) == 0
    return {unit.name: unit.read_text() for unit in folder.iterdir()}


def _command(service: str) -> list[str]:
    """Return the words of a unit's command, read as systemd reads them."""
    (line,) = (line for line in service.splitlines() if line.startswith("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]


def test_systemd_reads_the_units(lab: Path, tmp_path: Path) -> None:
    """Both, without a word; a word of theirs that it does not know is one too many."""
    need_program("systemd-analyze")
    units = _units(lab, tmp_path / "units")
    verify = ("systemd-analyze", "verify", "--man=no", str(tmp_path / "units" / TIMER))

    good = subprocess.run(verify, capture_output=True, text=True, check=False)
    (tmp_path / "units" / SERVICE).write_text(units[SERVICE].replace("RestartSec", "RestartEver"))
    bad = subprocess.run(verify, capture_output=True, text=True, check=False)

    assert set(units) == {SERVICE, TIMER}
    assert f"{tmp_path / 'units'}" not in good.stderr
    assert "RestartEver" in bad.stderr


def test_its_command_renews_the_list_and_tells_the_gateways(lab: Path, gateways: Path, tmp_path: Path) -> None:
    """A list past the half of its life is signed anew, and both gateways hold it."""
    command = _command(_units(lab, tmp_path / "units")[SERVICE])

    assert command[1:5] == ["-m", "bedplate", "vpn", "sync"]
    assert run(command[3:]) == 0

    lists = {(gateways / host / "crl.pem").read_text() for host in HOSTS}
    assert {number_of(read_lists(text)[0]) for text in lists} == {2}


def test_its_options_are_whole_paths(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts it is in another folder."""
    monkeypatch.chdir(lab.parent)

    command = _command(_units(Path("fleet.yaml"), tmp_path / "units", "--passphrase-file", "words")[SERVICE])

    assert command[5:] == [str(lab), "--passphrase-file", str(lab.parent / "words")]


def test_a_folder_that_cannot_be_made_is_told(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 4, and its name."""
    assert run(["vpn", "timer", str(lab), "--write", str(lab / "units")]) == 4

    assert str(lab / "units") in capsys.readouterr().err
