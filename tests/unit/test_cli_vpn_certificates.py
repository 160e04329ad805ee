"""Certificates of laptops and of gateways with tunnels: issued, sent, renewed and revoked, with real gateway agents."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from cryptography import x509
from moto import mock_aws

from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.lock import lock_path, record_endpoints
from bedplate.operate import open_fleet, plan_loaded
from bedplate.operate.keys import keys_of
from tests.testlab.fakes.gateway import calls_of, shell_to, site_gateway_at
from tests.testlab.fleets.variants import (
    ATTIC,
    CELLAR,
    CONNECTED_SITES_TEXT,
    GATEWAY_ADDRESS,
    HOME,
    JOINS,
    NORTH,
    PUBLIC,
    REGION,
    RESOLVERS,
    WEST,
)
from tests.testlab.fleets.variants import CONNECTED_REGIONS_TEXT as REGIONS
from tests.testlab.keys.authority import NOW, open_authority, unasked
from tests.testlab.keys.operator import HOSTS, listed, lose_credentials
from tests.testlab.network.gateways import CELLAR as CELLAR_PEER
from tests.testlab.run import documented_blocks, documented_yaml
from vpn.audit_log import Begun
from vpn.authority import new_root, parse_crls
from vpn.certificates import certificate_text
from vpn.gateways import peer_subjects
from vpn.pki import FOLDER, FolderKeys, create_authority, folder_of
from vpn.signing import issue_certificates

SITES = {ATTIC: "door.attic", CELLAR: "gate.cellar"}
BY_CERTIFICATES = documented_yaml("vpn-sites.md", "auth: certificates")
DAY = timedelta(days=1)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file of a fleet with connected sites that use certificates; the stack `links` is deployed."""
    file = tmp_path / "fleet.yaml"
    file.write_text(CONNECTED_SITES_TEXT + BY_CERTIFICATES, encoding="utf-8")
    assert run(["plan", str(file), "--write"]) == 0
    shell_to(tmp_path / "hosts", monkeypatch)
    for name in SITES.values():
        site_gateway_at(tmp_path / "hosts" / name)
    with mock_aws():
        for number, site in enumerate(SITES):
            tunnel_keys = {f"203.0.113.{10 * number + tunnel}": f"a.key.{number}.{tunnel}" for tunnel in (1, 2)}
            secret = {"Name": f"rooms/tunnels/{site}/{REGION}", "SecretString": json.dumps(tunnel_keys)}
            boto3.client("secretsmanager", REGION).create_secret(**secret)
        yield file


def _begun(fleet: Path, ago: timedelta) -> None:
    """Create the fleet's authority in the past, and issue the certificates of its gateways."""
    folder, then = folder_of(fleet), datetime.now(UTC).replace(microsecond=0) - ago
    create_authority(folder, Begun(then, "rooms", "", FOLDER, "", ""), FolderKeys(folder.keys))
    peers = tuple(peer_subjects(plan_loaded(open_fleet(Terminal(fleet)))).values())
    issue_certificates(keys_of("rooms", Terminal(fleet)), peers, then, unasked)


def _begin_anew(fleet: Path, ago: timedelta) -> None:
    """Issue a gateway's certificate in the past."""
    authority = open_authority(datetime.now(UTC))
    certificate = authority.certificate(CELLAR_PEER, at=-ago).certificate
    (_charon(fleet, ATTIC) / "x509/cellar-site.crt").write_text(certificate)


def _charon(fleet: Path, site: str) -> Path:
    """Return charon's folder on a site's gateway."""
    return fleet.parent / "hosts" / SITES[site] / "etc/bedplate/ipsec/tunnels"


def _certificate(fleet: Path, site: str) -> x509.Certificate:
    (file,) = (_charon(fleet, site) / "x509").iterdir()
    return x509.load_pem_x509_certificate(file.read_bytes())


def _revoked(fleet: Path, site: str) -> set[int]:
    """Return the revoked serials in the list of a site's gateway."""
    (file,) = (_charon(fleet, site) / "x509crl").iterdir()
    return {entry.serial_number for entry in parse_crls(file.read_text())[0]}


def test_each_gateway_gets_its_own_certificate_once(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its certificate, its key readable by root only, the authority and the list; never the other's key."""
    assert run(["vpn", "init", str(fleet)]) == 0

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    capsys.readouterr()
    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert capsys.readouterr().out.count("3 tunnels, no change") == 2
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        folder, certificate = _charon(fleet, site), _certificate(fleet, site)
        text = (folder / "swanctl.conf").read_text()
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"tunnels.{site}.rooms.internal"]
        assert f"id = tunnels.{other}.rooms.internal\n      auth = pubkey" in text
        assert "revocation = strict" in text
        assert [key_file.stat().st_mode & 0o777 for key_file in (folder / "private").iterdir()] == [0o600]
        assert len(list((folder / "x509ca").iterdir())) == len(list((folder / "x509crl").iterdir())) == 1
    keys = [next((_charon(fleet, site) / "private").iterdir()).read_text() for site in SITES]
    assert keys[0] != keys[1]


def test_no_key_is_told_or_passed_as_an_argument(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are neither printed nor visible in a process list."""
    run(["vpn", "init", str(fleet)])
    run(["vpn", "tunnels", str(fleet)])

    output = capsys.readouterr()
    text = (
        output.out
        + output.err
        + "".join((fleet.parent / "hosts" / name / "calls").read_text() for name in SITES.values())
    )
    for site in SITES:
        (key,) = (_charon(fleet, site) / "private").iterdir()
        assert not any(line in text for line in key.read_text().splitlines()[1:-1])


@pytest.mark.parametrize("command", ["tunnels", "sync"])
@pytest.mark.parametrize("days", [40, 50])
def test_past_the_half_of_its_life_a_certificate_is_renewed(
    command: str, days: int, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both `vpn sync` and `vpn tunnels` renew it, and send it and the list to the gateway."""
    _begun(fleet, days * DAY)
    is_renewed, before = days > 45, datetime.now(UTC) + (90 - days) * DAY

    assert run(["vpn", command, str(fleet)]) == 0

    assert ("+ tunnels.attic.rooms.internal" in capsys.readouterr().out) is is_renewed
    for site in SITES:
        assert (_certificate(fleet, site).not_valid_after_utc > before + DAY) is is_renewed
        (listed,) = (_charon(fleet, site) / "x509crl").iterdir()
        end = parse_crls(listed.read_text())[0].next_update_utc
        assert end
        assert (end > before + DAY) is is_renewed


def test_a_sync_that_cannot_ask_aws_leaves_gateways_as_they_are(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway gets all its files or none. The message names the credentials."""
    _begun(fleet, 50 * DAY)
    assert run(["vpn", "tunnels", str(fleet)]) == 0
    issued = _certificate(fleet, ATTIC)
    (folder_of(fleet).keys / "tunnels.attic.rooms.internal.pem").unlink()

    with monkeypatch.context() as patch:
        lose_credentials(patch)
        status = run(["vpn", "sync", str(fleet)])

    assert "credentials" in capsys.readouterr().err
    assert status not in {0, 2}
    assert _certificate(fleet, ATTIC) == issued


def test_new_keys_revoke_the_old(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gateways get new certificates and a list of the old ones; nothing is restarted."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    old = {site: _certificate(fleet, site).serial_number for site in SITES}
    for name in SITES.values():
        calls_of(fleet.parent / "hosts" / name)

    assert run(["vpn", "tunnels", str(fleet), "--new-keys"]) == 0

    for site, name in SITES.items():
        assert _certificate(fleet, site).serial_number not in old.values()
        assert _revoked(fleet, site) == set(old.values())
        calls = [call for call in calls_of(fleet.parent / "hosts" / name) if "enable" not in call]
        assert calls == ["systemctl try-reload-or-restart bedplate-ipsec-tunnels.service"]
    assert "revoked" in capsys.readouterr().out


def test_who_is_joined_no_more_is_revoked(fleet: Path) -> None:
    """Also if the file returns to pre-shared keys; the gateway's certificates are removed."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    serials = {_certificate(fleet, site).serial_number for site in SITES}
    fleet.write_text(CONNECTED_SITES_TEXT, encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    assert run(["vpn", "sync", str(fleet)]) == 0

    assert not (_charon(fleet, ATTIC) / "private").exists() or not any((_charon(fleet, ATTIC) / "private").iterdir())
    assert "secret = 0x" in (_charon(fleet, ATTIC) / "swanctl.conf").read_text()
    listed = parse_crls(folder_of(fleet).lists.read_text())[0]
    assert {entry.serial_number for entry in listed} == serials


def test_a_gateway_that_a_sync_does_not_reach_is_named(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6; the other gateway is updated."""
    _begun(fleet, 50 * DAY)
    (fleet.parent / "hosts/door.attic").rename(fleet.parent / "away")

    assert run(["vpn", "sync", str(fleet)]) == 6

    assert "door.attic: no response on the SSH port" in capsys.readouterr().err
    assert (_charon(fleet, CELLAR) / "x509").is_dir()


@pytest.mark.parametrize("command", [pytest.param("tunnels", marks=pytest.mark.nightly), "sync"])
def test_a_certificate_that_serves_nobody_costs_no_other_gateway_its_own(
    command: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: it is named with a fix and kept, and the other gateway gets all tunnels."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    file = folder_of(fleet).keys / "tunnels.attic.rooms.internal.pem"
    sound, mine = file.read_text(), _certificate(fleet, ATTIC)
    file.write_text(sound.replace("MII", "mii", 1))
    issue_certificates(
        keys_of("rooms", Terminal(fleet)),
        (peer_subjects(plan_loaded(open_fleet(Terminal(fleet))))[CELLAR],),
        datetime.now(UTC),
        unasked,
    )
    theirs = _certificate(fleet, CELLAR)
    capsys.readouterr()

    assert run(["vpn", command, str(fleet)]) == 6

    output = capsys.readouterr()
    assert "door.attic: the certificate of the tunnels of attic cannot be read" in output.err
    assert "delete tunnels.attic.rooms.internal.pem in this folder" in output.err
    assert "gate.cellar: 3 tunnels" in output.out
    assert _certificate(fleet, ATTIC) == mine
    assert _certificate(fleet, CELLAR) != theirs
    file.unlink()
    assert run(["vpn", command, str(fleet)]) == 0
    assert _certificate(fleet, ATTIC) != mine


def test_without_joined_gateways_nobody_gets_a_certificate(fleet: Path) -> None:
    """`auth: certificates` alone issues none."""
    run(["vpn", "init", str(fleet)])
    fleet.write_text(CONNECTED_SITES_TEXT.replace(JOINS, "") + BY_CERTIFICATES, encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert keys_of("rooms", Terminal(fleet)).certificates.issued == {}


def test_regions_know_each_other_by_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sites do, with the same identities as with keys; AWS is not asked."""
    file = tmp_path / "fleet.yaml"
    tunnels = BY_CERTIFICATES.replace("vpn:\n", "")
    file.write_text(REGIONS.replace("vpn:\n", f"vpn:\n{tunnels}"), encoding="utf-8")
    shell_to(tmp_path / "hosts", monkeypatch)
    hosts = {region: site_gateway_at(tmp_path / "hosts" / f"laptops.{region}") for region in (WEST, NORTH)}
    assert run(["plan", str(file), "--write"]) == 0
    assert run(["vpn", "init", str(file)]) == 0
    record_endpoints(lock_path(file), "pair", PUBLIC, {})

    assert run(["vpn", "tunnels", str(file)]) == 0

    for region, other in ((WEST, NORTH), (NORTH, WEST)):
        folder = hosts[region] / "etc/bedplate/ipsec/tunnels"
        assert f"id = laptops.{other}.pair.internal" in (folder / "swanctl.conf").read_text()
        certificate = x509.load_pem_x509_certificate((folder / f"x509/{other}.crt").read_bytes())
        assert certificate.subject.rfc4514_string() == f"CN=laptops.{region}.pair.internal"


def test_status_tells_what_ends(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The days left of each gateway's certificate and list; below 14 is a fault that names the command."""
    _begun(fleet, 2 * DAY + timedelta(hours=1))  # 87 days and some hours are left
    run(["vpn", "tunnels", str(fleet)])
    capsys.readouterr()

    assert run(["vpn", "status", str(fleet)]) == 3

    output = capsys.readouterr().out
    assert output.count("tunnel certificate 87 days left   tunnel list 87 days left") == 2
    assert "expires in" not in output


def test_what_nobody_renews_is_amiss(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A certificate that expires within days is reported before the gateway refuses connections."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    _begin_anew(fleet, 80.5 * DAY)
    capsys.readouterr()

    run(["vpn", "status", str(fleet)])

    output = capsys.readouterr().out
    assert "warning: door.attic: the certificate for tunnels expires in 9 days: run `bedplate vpn sync`" in output
    assert "gate.cellar: its certificate" not in output


_OTHER = certificate_text(new_root("lab", NOW).certificate).encode()


def test_an_authority_is_made_once(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output says what to commit; a second `vpn init` is refused and changes nothing."""
    assert run(["vpn", "init", str(lab)]) == 0
    first = folder_of(lab).authority.read_bytes()
    assert run(["vpn", "init", str(lab)]) == 2

    output = capsys.readouterr()
    assert "commit the folder" in output.out
    assert "already has an authority" in output.err
    assert folder_of(lab).authority.read_bytes() == first


@pytest.mark.parametrize(
    "verb", [["add", "ada"], ["renew", "ada"], ["revoke", "ada"], ["list"], ["show", "ada"], ["sync"]]
)
def test_no_command_works_without_an_authority(verb: list[str], lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2; the message names `vpn init`."""
    assert run(["vpn", *verb, str(lab)]) == 2

    assert "`bedplate vpn init`" in capsys.readouterr().err


def test_a_damaged_journal_ends_every_command(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has a fix and no traceback."""
    journal = folder_of(begun).journal
    journal.write_text(journal.read_text()[:-40])

    for verb in (["add", "ada"], ["list"], ["sync"]):
        assert run(["vpn", *verb, str(begun)]) == 2

    assert capsys.readouterr().err.count("cp journal.copy journal") == 3


def secret_file(path: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _locked(lab: Path, passphrase_file: Path) -> list[str]:
    return ["vpn", "init", str(lab), "--locked", "--passphrase-file", str(passphrase_file)]


def test_locked_keys_open_with_their_passphrase(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file. Without a file or a terminal, the message names the option."""
    passphrase_file = secret_file(tmp_path / "passphrase", "correct horse battery\n")
    wrong = secret_file(tmp_path / "wrong", "another horse battery\n")
    assert run(_locked(lab, passphrase_file)) == 0

    assert run(["vpn", "add", "ada", str(lab)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(wrong)]) == 2
    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(passphrase_file)]) == 0

    errors = capsys.readouterr().err
    assert "stdin is no terminal" in errors
    assert "horse" not in errors


def test_an_empty_passphrase_is_told_as_one(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From an empty file or an empty prompt: status 2."""
    passphrase_file, empty = (
        secret_file(tmp_path / "passphrase", "correct horse battery\n"),
        secret_file(tmp_path / "empty", "\n"),
    )
    assert run(_locked(lab, passphrase_file)) == 0

    assert run(["vpn", "add", "ada", str(lab), "--passphrase-file", str(empty)]) == 2

    assert "the passphrase is empty" in capsys.readouterr().err


def test_a_passphrase_that_others_may_read_is_refused(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ssh refuses a readable private key."""
    passphrase_file = secret_file(tmp_path / "passphrase", "correct horse battery\n")
    passphrase_file.chmod(0o640)

    assert run(_locked(lab, passphrase_file)) == 2

    assert f"chmod 600 {passphrase_file}" in capsys.readouterr().err
    assert not folder_of(lab).authority.exists()


def test_a_short_passphrase_is_refused(lab: Path, tmp_path: Path) -> None:
    """The command refuses it before it creates anything."""
    passphrase_file = secret_file(tmp_path / "passphrase", "short\n")

    assert run(_locked(lab, passphrase_file)) == 2

    assert not folder_of(lab).authority.exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: root.with_name("root.key.crt").unlink(), "cannot read the root's certificate"),
        (lambda root: root.write_text("no key\n"), "the root's key in root.key is not a private key"),
        (lambda root: root.with_name("root.key.crt").write_bytes(_OTHER), "does not match the private key"),
    ],
    ids=["no certificate", "no key", "another's certificate"],
)
def test_a_root_that_cannot_sign_is_refused(
    spoil: Callable[[Path], None], message: str, lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is created then; the undamaged root signs."""
    root = tmp_path / "disk" / "root.key"
    root.parent.mkdir()
    assert run(["vpn", "init", str(lab), "--root", str(root)]) == 0
    assert root.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(folder_of(lab).path)
    whole = (root.read_bytes(), root.with_name("root.key.crt").read_bytes())
    spoil(root)

    assert run(["vpn", "init", str(lab), "--root", str(root), "--first"]) == 2

    assert message in capsys.readouterr().err
    root.write_bytes(whole[0])
    root.with_name("root.key.crt").write_bytes(whole[1])
    assert run(["vpn", "init", str(lab), "--root", str(root), "--first"]) == 0


def test_a_root_beside_the_fleet_file_is_refused(lab: Path) -> None:
    """A root must not be stored with its authority."""
    assert run(["vpn", "init", str(lab), "--root", str(lab.with_name("root.key"))]) == 2

    assert not folder_of(lab).authority.exists()


def test_a_root_signs_a_successor(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`vpn init --replaces` revokes the former authority; without it, or the root's key, nothing is created."""
    root = str(tmp_path / "root.key")
    assert run(["vpn", "init", "--root", root]) == 0
    folder_of(here).path.rename("former.pki")

    assert run(["vpn", "init", "--replaces", "former.pki/authority.crt"]) == 2
    assert "pass its key: --root FILE" in capsys.readouterr().err
    assert run(["vpn", "init", "--root", root]) == 2
    assert "--replaces RENAMED/authority.crt, or --first" in capsys.readouterr().err
    assert not folder_of(here).authority.exists()
    assert run(["vpn", "init", "--root", root, "--replaces", "former.pki/authority.crt"]) == 0

    assert len(parse_crls(folder_of(here).root_list.read_text())[0]) == 1


def test_keys_in_the_account_are_on_no_disk(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands read them from SSM parameters; a second authority of the fleet is refused."""
    lab.write_text(lab.read_text().replace("111122223333", "123456789012"))
    record_endpoints(lock_path(lab), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 0
        assert run(["vpn", "add", "ada", str(lab)]) == 0
        assert run(["vpn", "show", "ada", str(lab)]) == 0
        shutil.rmtree(folder_of(lab).path)
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 2

    output = capsys.readouterr()
    assert "BEGIN PRIVATE KEY" in output.out
    assert "the AWS account already has an authority of lab" in output.err
    assert not folder_of(lab).keys.exists()


def test_keys_in_another_account_are_not_written(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names both accounts, and nothing is created."""
    with mock_aws():
        assert run(["vpn", "init", str(lab), "--keys", "parameters"]) == 2

    assert "111122223333" in capsys.readouterr().err
    assert not folder_of(lab).authority.exists()


def test_only_people_of_the_file_get_a_certificate(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the most similar person; case matters."""
    for user in ("adda", "Ada", "../ada"):
        assert run(["vpn", "add", user, str(begun)]) == 2

    assert "write ada" in capsys.readouterr().err
    assert listed(begun, capsys) == {}


def test_a_profile_holds_what_a_laptop_needs(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file with gateways, authority, certificate and keys; refused until the gateways' addresses are recorded."""
    run(["vpn", "add", "ada", str(begun), "--device", "phone"])
    assert run(["vpn", "show", "ada", str(begun), "--device", "phone"]) == 2
    assert "bedplate vpn record" in capsys.readouterr().err
    record_endpoints(lock_path(begun), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})

    assert run(["vpn", "show", "ada", str(begun), "--device", "phone"]) == 0

    profile = capsys.readouterr().out
    assert f"remote {GATEWAY_ADDRESS} 1194 udp4" in profile
    file = begun.with_name("ada.ovpn")
    assert run(["vpn", "show", "ada", str(begun), "--device", "phone", "--write", str(file)]) == 0
    assert (file.read_text(), file.stat().st_mode & 0o777) == (profile, 0o600)
    for block in ("BEGIN CERTIFICATE", "BEGIN PRIVATE KEY", "BEGIN OpenVPN tls-crypt-v2 client key"):
        assert block in profile


def test_a_written_profile_is_readable_by_its_owner_only(begun: Path, tmp_path: Path) -> None:
    """Mode 0600, also in place of an open file; an error leaves no file behind."""
    profile = tmp_path / "ada.ovpn"
    assert run(["vpn", "show", "ada", str(begun), "--write", str(profile)]) == 2
    assert not profile.exists()
    record_endpoints(lock_path(begun), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    run(["vpn", "add", "ada", str(begun)])
    profile.touch(0o644)

    assert run(["vpn", "show", "ada", str(begun), "--write", str(profile)]) == 0

    assert profile.stat().st_mode & 0o777 == 0o600
    assert "BEGIN PRIVATE KEY" in profile.read_text()


def test_a_profile_is_drawn_for_a_camera(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As several QR codes, since one is too small; the key is not printed as text."""
    record_endpoints(lock_path(begun), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    run(["vpn", "add", "ada", str(begun)])
    capsys.readouterr()

    assert run(["vpn", "show", "ada", str(begun), "--qr"]) == 0

    output = capsys.readouterr().out
    assert output.startswith("code 1 of ")
    assert "PRIVATE" not in output
    assert max(map(len, output.splitlines())) <= 120


def test_a_profile_that_opens_nothing_is_not_shown(begun: Path, gateways: Path) -> None:
    """Without a certificate, or after its revocation."""
    assert run(["vpn", "show", "grace", str(begun)]) == 2
    run(["vpn", "add", "grace", str(begun)])
    run(["vpn", "sync", str(begun)])
    assert run(["vpn", "revoke", "grace", str(begun)]) == 0

    assert run(["vpn", "show", "grace", str(begun)]) == 2


def test_a_profile_with_a_damaged_certificate_is_not_shown(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the command that issues a new one."""
    run(["vpn", "add", "ada", str(begun)])
    file = folder_of(begun).keys / "ada.laptop.pem"
    file.write_text(file.read_text().replace("MII", "mii", 1))

    assert run(["vpn", "show", "ada", str(begun)]) == 2

    assert "`bedplate vpn renew` issues a new one" in capsys.readouterr().err


def test_weak_storage_has_warnings(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key without a passphrase, by `vpn init` and `vpn list`, and a damaged copy of the audit log. Status 0."""
    assert run(["vpn", "init", str(lab)]) == 0
    assert "the authority's key is not encrypted" in capsys.readouterr().err
    folder_of(lab).copy.write_text("half of a\n")

    assert run(["vpn", "list", str(lab)]) == 0

    error = capsys.readouterr().err
    assert "the authority's key is not encrypted" in error
    assert "cp journal journal.copy" in error


def test_a_list_that_cannot_be_deployed_is_a_violation(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`vpn list` has status 3, and a sync signs a new list."""
    assert run(["vpn", "list", str(begun)]) == 0
    folder_of(begun).lists.unlink()

    assert run(["vpn", "list", str(begun)]) == 3
    assert "crl.pem cannot be read" in capsys.readouterr().out


def test_a_list_says_when_laptops_were_last_there(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latest time of all gateways; one that does not answer is named, with status 6."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "ada", str(begun), "--device", device])
    for host, moment in zip(HOSTS.values(), (1795262400, 1795176000), strict=True):
        (gateways / host / "seen.json").write_text(json.dumps({"ada.laptop": moment}))
    capsys.readouterr()

    assert run(["vpn", "list", str(begun), "--seen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (gateways / HOSTS["us-west-2"]).rename(gateways / "away")
    assert run(["vpn", "list", str(begun), "--seen", "--json"]) == 6

    document = capsys.readouterr()
    assert "seen 2026-11-21 12:00" in lines[0]
    assert "seen" not in lines[1]
    assert [certificate["seen"] for certificate in json.loads(document.out)["certificates"]] == [
        "2026-11-20T12:00:00+00:00",
        None,
    ]
    assert "unknown sessions at laptops.us-west-2: no response on the SSH port" in document.err


def test_every_command_of_the_page_about_keys_works(lab: Path, gateways: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, from a fleet file alone; the authority is the one that the gateways trust already.

    What two operators type whose clones have parted is followed by a test of its own.
    """
    record_endpoints(lock_path(lab), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    monkeypatch.chdir(lab.parent)
    alone = documented_blocks("vpn-keys.md")
    lines = (line for block in alone for line in block)
    first, *others = (shlex.split(line) for line in lines if line.startswith("bedplate "))

    assert first[1:] == ["vpn", "init"]
    assert [words for words in others if run(words[1:]) != 0] == []
    assert {words[2] for words in others} == {"add", "sync", "show", "list", "renew", "revoke"}
    assert run(["node", "ssh-config"]) == 0


@pytest.fixture
def narrow(begun: Path) -> Path:
    """Return a fleet whose recorded pools have room for one laptop, which is taken."""
    begun.write_text(begun.read_text().replace("pool: /22", "pool: /29"))
    assert run(["plan", "--write", str(begun)]) == 0
    assert run(["vpn", "add", "ada", str(begun)]) == 0
    return begun


def _widen(lab: Path, place: str) -> None:
    """Record a larger pool of a place."""
    record = json.loads(lock_path(lab).read_text())
    record["blocks"][f"pool/{place}"] = "10.127.252.0/22"
    lock_path(lab).write_text(json.dumps(record))


def test_a_laptop_without_room_is_told_before_anything_is_signed(
    narrow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 with a fix, and the journal does not change."""
    before = folder_of(narrow).journal.read_bytes()

    assert run(["vpn", "add", "grace", str(narrow)]) == 2

    errors = capsys.readouterr().err
    assert "no free address for grace.laptop" in errors
    assert "has only 1" in errors
    assert "wider pool" in errors
    assert folder_of(narrow).journal.read_bytes() == before
    assert not list(folder_of(narrow).keys.glob("grace*"))


def test_a_laptop_that_was_revoked_makes_room(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its address is free again; laptops with an address can always be renewed."""
    assert run(["vpn", "renew", "ada", str(narrow)]) == 0
    run(["vpn", "revoke", "ada", str(narrow)])

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


def test_room_at_one_gateway_is_enough(narrow: Path) -> None:
    """A sync names the gateways without a free address."""
    _widen(narrow, "cellar")

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


@pytest.mark.parametrize(
    "text",
    [None, "{}", "[]", "{", '{"blocks": {"pool/us-west-2": "10.0.0.0/29"}}', '{"blocks": {"pool/us-west-2": 7}}'],
)
def test_what_no_lock_says_keeps_nobody_out(text: str | None, narrow: Path) -> None:
    """Without a lock, or with a damaged one, the check of free addresses is skipped."""
    lock_path(narrow).unlink()
    if text is not None:
        lock_path(narrow).write_text(text)

    assert run(["vpn", "add", "grace", str(narrow)]) == 0


def test_the_pool_of_a_gateway_that_is_gone_counts_no_more(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pool stays in the lock, and no laptop uses it."""
    _widen(narrow, "attic")

    assert run(["vpn", "add", "grace", str(narrow)]) == 2

    assert "no free address for" in capsys.readouterr().err
