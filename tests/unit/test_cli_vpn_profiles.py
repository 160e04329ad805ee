"""`bedplate vpn add`, `show` and `list`: who gets a certificate, what a laptop is handed, and what is told of both."""

import json
import shlex
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support.laptop_desk import HOSTS, listed
from tests.support.laptop_plans import HOME, PUBLIC, RESOLVERS
from tests.support.page import told_blocks
from vpn.pki_folder import folder_of


def test_only_people_of_the_file_get_a_certificate(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name is told, and nothing is issued; case counts."""
    for user in ("adda", "Ada", "../ada"):
        assert run(["vpn", "add", user, str(begun)]) == 2

    assert "the nearest is ada" in capsys.readouterr().err
    assert listed(begun, capsys) == {}


def test_a_profile_holds_what_a_laptop_needs(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file: gateways, whom to trust, certificate, key and hidden key; refused until gateways have an address."""
    run(["vpn", "add", "ada", str(begun), "--device", "phone"])
    assert run(["vpn", "show", "ada", str(begun), "--device", "phone"]) == 2
    assert "bedplate vpn record" in capsys.readouterr().err
    record_doors(lock_path(begun), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})

    assert run(["vpn", "show", "ada", str(begun), "--device", "phone"]) == 0

    told = capsys.readouterr().out
    assert f"remote {PUBLIC} 1194 udp4" in told
    for block in ("BEGIN CERTIFICATE", "BEGIN PRIVATE KEY", "BEGIN OpenVPN tls-crypt-v2 client key"):
        assert block in told


def test_a_profile_is_drawn_for_a_camera(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As several codes, for one holds less than a profile; no letter of the key is printed."""
    record_doors(lock_path(begun), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    run(["vpn", "add", "ada", str(begun)])
    capsys.readouterr()

    assert run(["vpn", "show", "ada", str(begun), "--qr"]) == 0

    told = capsys.readouterr().out
    assert told.startswith("1 of ")
    assert "PRIVATE" not in told
    assert max(map(len, told.splitlines())) <= 120


def test_a_profile_that_opens_nothing_is_not_shown(begun: Path, gateways: Path) -> None:
    """Never issued, or revoked."""
    assert run(["vpn", "show", "grace", str(begun)]) == 2
    run(["vpn", "add", "grace", str(begun)])
    run(["vpn", "sync", str(begun)])
    assert run(["vpn", "revoke", "grace", str(begun)]) == 0

    assert run(["vpn", "show", "grace", str(begun)]) == 2


def test_a_list_that_cannot_be_deployed_is_a_violation(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A watch that runs `vpn list` hears of it; a sync signs a new one."""
    assert run(["vpn", "list", str(begun)]) == 0
    folder_of(begun).lists.unlink()

    assert run(["vpn", "list", str(begun)]) == 3
    assert "crl.pem cannot be read" in capsys.readouterr().out


def test_a_list_says_when_laptops_were_last_there(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The later of what two gateways remember; one that does not answer is named, with status 6."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "ada", str(begun), "--device", device])
    for host, moment in zip(HOSTS.values(), (1795262400, 1795176000), strict=True):
        (gateways / host / "seen.json").write_text(json.dumps({"ada.laptop": moment}))
    capsys.readouterr()

    assert run(["vpn", "list", str(begun), "--seen"]) == 0
    told = capsys.readouterr().out.splitlines()
    (gateways / HOSTS["us-west-2"]).rename(gateways / "away")
    assert run(["vpn", "list", str(begun), "--seen", "--json"]) == 6

    document = capsys.readouterr()
    assert "seen 2026-11-21 12:00" in told[0]
    assert "seen" not in told[1]
    assert [each["seen"] for each in json.loads(document.out)["certificates"]] == ["2026-11-20T12:00:00+00:00", None]
    assert "not known who was at laptops.us-west-2: not reached" in document.err


def test_every_command_of_the_page_about_keys_works(lab: Path, gateways: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, from a fleet file alone; the authority is the one that the gateways trust already.

    What two operators type whose clones have parted is followed by a test of its own.
    """
    record_doors(lock_path(lab), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    monkeypatch.chdir(lab.parent)
    alone = told_blocks("vpn-keys.md")
    first, *others = (shlex.split(line) for block in alone for line in block)

    assert first[1:] == ["vpn", "init"]
    assert [words for words in others if run(words[1:]) != 0] == []
    assert {words[2] for words in others} == {"add", "sync", "show", "list", "renew", "revoke"}
    assert run(["node", "ssh-config"]) == 0
