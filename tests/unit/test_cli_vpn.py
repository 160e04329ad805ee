"""`bedplate vpn`, driven as an operator drives it: keys on a disk, gateways that the real keeper stands for."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from moto import mock_aws

from bedplate.cli import run
from bedplate.lock import lock_path, record_doors
from tests.support.authority import NOW
from tests.support.declared import EXAMPLES
from tests.support.gateway_shell import shell_to
from tests.support.laptop_plans import HOME, PUBLIC, RESOLVERS
from tests.support.needs import need_program
from tests.support.page import spoken, told_commands
from vpn.authority import new_root
from vpn.certificate import certificate_text
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists

_OTHER = certificate_text(new_root("lab", NOW).certificate).encode()
HOSTS = {"us-west-2": "laptops.us-west-2", "cellar": "gate.cellar"}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return a copy of the lab's file in a folder of its own."""
    (tmp_path / "fleet").mkdir()
    return Path(shutil.copy(EXAMPLES / "lab.yaml", tmp_path / "fleet" / "fleet.yaml"))


@pytest.fixture
def begun(lab: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the lab's file with an authority beside it."""
    assert run(["vpn", "init", str(lab)]) == 0
    capsys.readouterr()
    return lab


@pytest.fixture
def gateways(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of both gateways, which trust the lab's authority and have let nobody in yet."""
    need_program("openssl")
    hosts = tmp_path / "hosts"
    for host in HOSTS.values():
        (hosts / host).mkdir(parents=True)
        shutil.copy(folder_of(begun).authority, hosts / host / "ca.crt")
    shell_to(hosts, monkeypatch)
    return hosts


def _listed(lab: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the note of each certificate."""
    capsys.readouterr()
    run(["vpn", "list", str(lab), "--json"])
    return {each["name"]: each["note"] for each in json.loads(capsys.readouterr().out)["certificates"]}


def _without(lab: Path, user: str) -> None:
    lines = lab.read_text().splitlines(keepends=True)
    lab.write_text("".join(line for line in lines if not line.startswith(f"  {user}:")))


def _let_in(gateways: Path, host: str) -> set[str]:
    return {file.name for file in (gateways / host / "udp.laptops").iterdir()}


def test_an_authority_is_made_once(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said what to commit; a second time it is refused, and nothing is changed."""
    assert run(["vpn", "init", str(lab)]) == 0
    first = folder_of(lab).authority.read_bytes()
    assert run(["vpn", "init", str(lab)]) == 2

    told = capsys.readouterr()
    assert "commit the folder" in told.out
    assert "authority already" in told.err
    assert folder_of(lab).authority.read_bytes() == first


@pytest.mark.parametrize(
    "verb", [["add", "ada"], ["renew", "ada"], ["revoke", "ada"], ["list"], ["show", "ada"], ["sync"]]
)
def test_no_command_works_without_an_authority(verb: list[str], lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says which command makes one."""
    assert run(["vpn", *verb, str(lab)]) == 2

    assert "`bedplate vpn init`" in capsys.readouterr().err


def test_only_people_of_the_file_get_a_certificate(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest name is told, and nothing is issued; case counts."""
    for user in ("adda", "Ada", "../ada"):
        assert run(["vpn", "add", user, str(begun)]) == 2

    assert "the nearest is ada" in capsys.readouterr().err
    assert _listed(begun, capsys) == {}


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


def test_a_sync_gives_gateways_certificates_and_lets_laptops_in(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second has nothing left to sign."""
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    journal = folder_of(begun).journal.read_bytes()

    assert run(["vpn", "sync", str(begun)]) == 0

    assert folder_of(begun).journal.read_bytes() == journal
    assert set(_listed(begun, capsys)) == {"ada.laptop", *(f"gateway.{place}.lab.internal" for place in HOSTS)}
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
    """A gateway's file that another took the place of: it is told, and no gateway hears of it."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    keys = folder_of(begun).keys
    before = (gateways / "gate.cellar" / "server.crt").read_bytes()
    shutil.copy(keys / "ada.laptop.pem", keys / "gateway.cellar.lab.internal.pem")

    assert run(["vpn", "sync", str(begun)]) == 2

    assert "the certificate of the gateway in cellar may not be used as a server" in capsys.readouterr().err
    assert (gateways / "gate.cellar" / "server.crt").read_bytes() == before


def test_who_left_the_file_is_revoked_by_a_sync(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of their machines, at every gateway; until then the list says so."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "grace", str(begun), "--device", device])
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    _without(begun, "grace")
    before = _listed(begun, capsys)

    assert run(["vpn", "sync", str(begun)]) == 0

    assert "has left" in before["grace.phone"]
    assert not [name for name in _listed(begun, capsys) if name.startswith("grace")]
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
    assert "ada.laptop" in _listed(begun, capsys)


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


def test_a_list_that_cannot_be_deployed_is_a_violation(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A watch that runs `vpn list` hears of it; a sync signs a new one."""
    assert run(["vpn", "list", str(begun)]) == 0
    folder_of(begun).lists.unlink()

    assert run(["vpn", "list", str(begun)]) == 3
    assert "crl.pem cannot be read" in capsys.readouterr().out


def test_a_damaged_journal_ends_every_command(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way back, and no traceback."""
    journal = folder_of(begun).journal
    journal.write_text(journal.read_text()[:-40])

    for verb in (["add", "ada"], ["list"], ["sync"]):
        assert run(["vpn", *verb, str(begun)]) == 2

    assert capsys.readouterr().err.count("cp journal.copy journal") == 3


def _locked(lab: Path, told: Path) -> list[str]:
    return ["vpn", "init", str(lab), "--locked", "--passphrase-file", str(told)]


def test_locked_keys_open_with_their_passphrase(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file; without one, and with nobody at a terminal, it is said how."""
    told, wrong = tmp_path / "passphrase", tmp_path / "wrong"
    told.write_text("correct horse battery\n")
    wrong.write_text("another horse battery\n")
    assert run(_locked(lab, told)) == 0

    assert run(["vpn", "add", "ada", str(lab)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(wrong)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(told)]) == 0

    errors = capsys.readouterr().err
    assert "nobody is here to be asked" in errors
    assert "horse" not in errors


def test_a_short_passphrase_is_refused(lab: Path, tmp_path: Path) -> None:
    """Before anything is made."""
    told = tmp_path / "passphrase"
    told.write_text("short\n")

    assert run(_locked(lab, told)) == 2

    assert not folder_of(lab).authority.exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: root.with_name("root.key.crt").unlink(), "certificate cannot be read"),
        (lambda root: root.write_text("no key\n"), "nothing can be read as the root's key"),
        (lambda root: root.with_name("root.key.crt").write_bytes(_OTHER), "does not belong to the key"),
    ],
    ids=["no certificate", "no key", "another's certificate"],
)
def test_a_root_that_cannot_sign_is_refused(
    spoil: Callable[[Path], None], message: str, lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made then; the same root, whole, signs."""
    root = tmp_path / "disk" / "root.key"
    root.parent.mkdir()
    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 0
    assert root.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(folder_of(lab).path)
    whole = (root.read_bytes(), root.with_name("root.key.crt").read_bytes())
    spoil(root)

    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 2

    assert message in capsys.readouterr().err
    root.write_bytes(whole[0])
    root.with_name("root.key.crt").write_bytes(whole[1])
    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 0


def test_a_root_beside_the_fleet_file_is_refused(lab: Path) -> None:
    """It would be kept where the authority is, and protect from nothing."""
    assert run(["vpn", "init", str(lab), "--root", str(lab.with_name("root.key"))]) == 2

    assert not folder_of(lab).authority.exists()


def test_every_command_of_the_page_about_keys_works(lab: Path, gateways: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, from a fleet file alone; the authority is the one that the gateways trust already."""
    record_doors(lock_path(lab), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    monkeypatch.chdir(lab.parent)
    first, *others = (shlex.split(line) for line in told_commands("vpn-keys.md"))

    assert first[1:] == ["vpn", "init"]
    assert [words for words in others if run(words[1:]) != 0] == []
    assert {words[2] for words in others} == {"add", "sync", "show", "list", "renew", "revoke"}
    assert run(shlex.split(spoken("vpn-keys.md", "bedplate node ssh-config"))[1:]) == 0


def test_a_pool_that_is_full_becomes_a_wider_one(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the page's own command, once the file says so; whoever has a profile dials where they dialled."""
    record_doors(lock_path(lab), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    monkeypatch.chdir(lab.parent)
    assert run(["plan", "--write"]) == 0
    lab.write_text(lab.read_text().replace("pool: /22", "pool: /20"))

    assert run(["plan", "--write"]) == 2
    assert (
        run(shlex.split(spoken("vpn.md", "bedplate plan --write --release pool/us-west-2 --release pool/cellar"))[1:])
        == 0
    )

    lock = json.loads(lock_path(lab).read_text())
    assert {name: block.rpartition("/")[2] for name, block in lock["blocks"].items() if name.startswith("pool/")} == {
        "pool/us-west-2": "20",
        "pool/cellar": "20",
    }
    assert lock["gateways"] == {HOME: str(PUBLIC)}


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


def test_a_gateway_that_does_not_answer_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: whether it carries is not known."""
    for host in HOSTS.values():
        (gateways / host).rename(gateways / f"{host}.away")

    assert run(["vpn", "status", str(begun)]) == 6

    assert "gate.cellar   not reached: ssh: connect to host gate.cellar" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["parameters", "secrets"])
def test_keys_in_the_account_are_on_no_disk(kind: str, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are signed with and shown from there; a second authority of the fleet is refused, wherever it is begun."""
    lab.write_text(lab.read_text().replace("111122223333", "123456789012"))
    record_doors(lock_path(lab), "lab", {HOME: PUBLIC}, {HOME: RESOLVERS})
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", kind]) == 0
        assert run(["vpn", "add", "ada", str(lab)]) == 0
        assert run(["vpn", "show", "ada", str(lab)]) == 0
        shutil.rmtree(folder_of(lab).path)
        assert run(["vpn", "init", str(lab), "--keys", kind]) == 2

    told = capsys.readouterr()
    assert "BEGIN PRIVATE KEY" in told.out
    assert "the account keeps an authority of lab already" in told.err
    assert not folder_of(lab).keys.exists()


def test_keys_in_another_account_are_not_written(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both accounts are named, and nothing was made."""
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 2

    assert "111122223333" in capsys.readouterr().err
    assert not folder_of(lab).authority.exists()


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
