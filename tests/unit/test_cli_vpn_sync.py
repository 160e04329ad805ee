"""`bedplate vpn sync`, `revoke` and `status`: what gateways, for which the real keeper stands, hear and tell."""

import json
import shutil
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.support.laptop_desk import HOSTS, listed
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists


def _without(lab: Path, user: str) -> None:
    lines = lab.read_text().splitlines(keepends=True)
    lab.write_text("".join(line for line in lines if not line.startswith(f"  {user}:")))


def _let_in(gateways: Path, host: str) -> set[str]:
    return {file.name for file in (gateways / host / "udp.laptops").iterdir()}


def test_a_sync_gives_gateways_certificates_and_lets_laptops_in(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second has nothing left to sign."""
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    journal = folder_of(begun).journal.read_bytes()

    assert run(["vpn", "sync", str(begun)]) == 0

    assert folder_of(begun).journal.read_bytes() == journal
    assert set(listed(begun, capsys)) == {"ada.laptop", *(f"gateway.{place}.lab.internal" for place in HOSTS)}
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [{"ada.laptop"}] * 2


def test_a_gateways_lost_key_is_made_anew(begun: Path, gateways: Path) -> None:
    """The gateway has the new certificate afterwards, of an entry of its own."""
    assert run(["vpn", "sync", str(begun)]) == 0
    before = (gateways / "gate.cellar" / "server.crt").read_bytes()
    (folder_of(begun).keys / "gateway.cellar.lab.internal.pem").unlink()

    assert run(["vpn", "sync", str(begun)]) == 0

    assert (gateways / "gate.cellar" / "server.crt").read_bytes() != before


def test_a_certificate_of_somebody_elses_is_not_carried(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway's file that another took the place of: it is told, and the gateway keeps what it has."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    keys = folder_of(begun).keys
    before = (gateways / "gate.cellar" / "server.crt").read_bytes()
    shutil.copy(keys / "ada.laptop.pem", keys / "gateway.cellar.lab.internal.pem")

    assert run(["vpn", "sync", str(begun)]) == 6

    assert "the certificate of the gateway in cellar may not be used as a server" in capsys.readouterr().err
    assert (gateways / "gate.cellar" / "server.crt").read_bytes() == before


def test_a_damaged_key_keeps_no_revocation_from_any_gateway(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the list, the other its keys too, and what is damaged is named: status 6."""
    run(["vpn", "add", "grace", str(begun)])
    run(["vpn", "sync", str(begun)])
    (folder_of(begun).keys / "gateway.cellar.lab.internal.pem").write_text("half of a\n")
    _without(begun, "grace")

    assert run(["vpn", "sync", str(begun)]) == 6

    assert "gateway.cellar.lab.internal cannot be sent: it is no certificate" in capsys.readouterr().err
    assert [len(read_lists((gateways / host / "crl.pem").read_text())[0]) for host in HOSTS.values()] == [1, 1]
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [set(), set()]


def test_a_fault_in_the_file_keeps_nobody_from_being_revoked(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is signed; no gateway is updated, since the file does not name them: status 6."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    sound = begun.read_text()
    begun.write_text(sound.replace("pool: /22", "pool: /99"))

    assert run(["vpn", "revoke", "ada", str(begun)]) == 6

    told = capsys.readouterr()
    assert "revoked, but no gateway was updated: " in told.err
    begun.write_text(sound)
    assert "ada.laptop" not in listed(begun, capsys)
    assert run(["vpn", "sync", str(begun)]) == 0
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [set(), set()]


def test_a_revocation_that_no_gateway_got_is_done_in_part(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error after the journal was written is status 6, of `revoke` and of `sync`; the next `sync` sends the list."""
    for user in ("ada", "grace"):
        run(["vpn", "add", user, str(begun)])
    run(["vpn", "sync", str(begun)])
    _without(begun, "grace")
    nowhere = ["--ssh-config", str(begun.with_name("none"))]

    assert run(["vpn", "revoke", "ada", str(begun), *nowhere]) == 6
    assert "revoked, but no gateway was updated: there is no such file" in capsys.readouterr().err
    assert run(["vpn", "sync", str(begun), *nowhere]) == 6
    assert "signed, but not every gateway was updated: there is no such file" in capsys.readouterr().err
    assert run(["vpn", "sync", str(begun), *nowhere]) == 2

    assert run(["vpn", "sync", str(begun)]) == 0
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [set(), set()]


def test_who_left_the_file_is_revoked_by_a_sync(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of their machines, at every gateway; until then the list says so."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "grace", str(begun), "--device", device])
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    _without(begun, "grace")
    before = listed(begun, capsys)

    assert run(["vpn", "sync", str(begun)]) == 0

    assert "has left" in before["grace.phone"]
    assert not [name for name in listed(begun, capsys) if name.startswith("grace")]
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [{"ada.laptop"}] * 2


def test_a_revoked_laptop_is_refused_everywhere(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its gateways have the list that names it; the person's other machine goes on."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "ada", str(begun), "--device", device])
    run(["vpn", "sync", str(begun)])

    assert run(["vpn", "revoke", "ada", str(begun), "--device", "phone"]) == 0

    for host in HOSTS.values():
        assert _let_in(gateways, host) == {"ada.laptop"}
        assert len(read_lists((gateways / host / "crl.pem").read_text())[0]) == 1
    assert "ada.laptop" in listed(begun, capsys)


def test_a_gateway_that_was_not_reached_is_named(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6; what was signed stays signed, the other gateway has it, and a sync brings it to the first."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    (gateways / HOSTS["cellar"]).rename(gateways / "away")
    capsys.readouterr()

    assert run(["vpn", "revoke", "ada", str(begun)]) == 6

    told = capsys.readouterr()
    assert "cellar: not reached: ssh: connect to host gate.cellar port 22: Connection timed out" in told.err
    assert "us-west-2 was told" in told.out
    (gateways / "away").rename(gateways / HOSTS["cellar"])
    assert run(["vpn", "sync", str(begun)]) == 0
    assert [_let_in(gateways, host) for host in HOSTS.values()] == [set(), set()]


def test_revoking_twice_tells_gateways_twice(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second finds nothing to sign, and does no harm; somebody without a certificate is an error."""
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0

    assert "none of their certificates counted any more" in capsys.readouterr().out
    assert run(["vpn", "revoke", "grace", str(begun)]) == 2


def test_a_gateway_that_serves_nobody_is_told(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3: it answers, it has its keys, and no daemon is there; the document says the same."""
    run(["vpn", "sync", str(begun)])
    capsys.readouterr()

    assert run(["vpn", "status", str(begun)]) == 3
    told = capsys.readouterr().out
    assert run(["vpn", "status", str(begun), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)

    assert "error: gate.cellar: nothing here serves laptops: apply the role openvpn" in told
    assert {each["gateway"] for each in document["faults"]} == set(HOSTS.values())


def test_a_gateway_that_was_never_brought_its_tunnels_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plan: each of them is named, though the gateway knows of none."""
    assert run(["vpn", "status", str(begun)]) == 3

    assert "error: gate.cellar: it was not brought the tunnels us-west-2-1, us-west-2-2, us-" in capsys.readouterr().out


def test_a_gateway_that_is_a_list_behind_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that was away while somebody was revoked, and no other, until a sync."""
    run(["vpn", "add", "ada", str(begun)])
    for host in HOSTS.values():
        (gateways / host / "udp.conf").write_text("")
    run(["vpn", "sync", str(begun)])
    (gateways / HOSTS["cellar"]).rename(gateways / "away")
    run(["vpn", "revoke", "ada", str(begun)])
    (gateways / "away").rename(gateways / HOSTS["cellar"])

    def behind() -> list[str]:
        capsys.readouterr()
        assert run(["vpn", "status", str(begun)]) == 3
        return [line for line in capsys.readouterr().out.splitlines() if "it holds list" in line]

    told = behind()
    run(["vpn", "sync", str(begun)])

    fault = "it holds list 1 of revoked certificates, and 2 was signed: `bedplate vpn sync`"
    assert told == [f"error: gate.cellar: {fault}"]
    assert behind() == []


def test_a_gateway_that_does_not_answer_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: whether it carries is not known."""
    for host in HOSTS.values():
        (gateways / host).rename(gateways / f"{host}.away")

    assert run(["vpn", "status", str(begun)]) == 6

    assert "gate.cellar   not reached: ssh: connect to host gate.cellar" in capsys.readouterr().out
