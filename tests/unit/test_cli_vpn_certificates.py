"""Tunnels between the fleet's own gateways by certificates: issued, carried, renewed, revoked, by real keepers."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from cryptography import x509
from moto import mock_aws

from bedplate.cli import run
from bedplate.cli.opening import opened, planned
from bedplate.cli.vpn_opening import keys_of
from bedplate.lock import lock_path, record_doors
from tests.support.authority import unasked
from tests.support.direct_fleet import ATTIC, CELLAR, JOINS, REGION, TEXT
from tests.support.gateway_shell import shell_to
from tests.support.gateway_tools import calls_of, site_gateway_at
from tests.support.joined_fleet import NORTH, PUBLIC, WEST
from tests.support.joined_fleet import TEXT as REGIONS
from tests.support.lab_pair import CELLAR as CELLAR_PEER
from tests.support.page import told_yaml
from tests.support.pair_desk import lose_credentials
from tests.support.papers import open_office
from vpn.entry import Begun
from vpn.key_store import FOLDER, FolderKeys
from vpn.peers import peer_subjects
from vpn.pki import begin
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists
from vpn.signing import issue_anew

SITES = {ATTIC: "door.attic", CELLAR: "gate.cellar"}
BY_CERTIFICATES = told_yaml("vpn-sites.md", "auth: certificates")
DAY = timedelta(days=1)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the file of a fleet with joined sites, by certificates, whose `links` is up; gateways have their roles."""
    file = tmp_path / "fleet.yaml"
    file.write_text(TEXT + BY_CERTIFICATES, encoding="utf-8")
    assert run(["plan", str(file), "--write"]) == 0
    shell_to(tmp_path / "hosts", monkeypatch)
    for name in SITES.values():
        site_gateway_at(tmp_path / "hosts" / name)
    with mock_aws():
        for number, site in enumerate(SITES):
            told = {f"203.0.113.{10 * number + one}": f"a.key.{number}.{one}" for one in (1, 2)}
            secret = {"Name": f"rooms/tunnels/{site}/{REGION}", "SecretString": json.dumps(told)}
            boto3.client("secretsmanager", REGION).create_secret(**secret)
        yield file


def _begun(fleet: Path, ago: timedelta) -> None:
    """Begin the fleet's authority so long ago, and issue what its gateways need then."""
    folder, then = folder_of(fleet), datetime.now(UTC).replace(microsecond=0) - ago
    begin(folder, Begun(then, "rooms", "", FOLDER), FolderKeys(folder.keys))
    peers = tuple(peer_subjects(planned(opened(fleet))).values())
    issue_anew(keys_of("rooms", fleet), peers, then, unasked)


def _begin_anew(fleet: Path, ago: timedelta) -> None:
    """Give one gateway a certificate that was issued so long ago."""
    office = open_office(datetime.now(UTC))
    made = office.papers(CELLAR_PEER, at=-ago).certificate
    (_charon(fleet, ATTIC) / "x509/cellar-site.crt").write_text(made)


def _charon(fleet: Path, site: str) -> Path:
    """Return the folder of charon's files on a site's gateway."""
    return fleet.parent / "hosts" / SITES[site] / "etc/bedplate/ipsec/tunnels"


def _certificate(fleet: Path, site: str) -> x509.Certificate:
    (file,) = (_charon(fleet, site) / "x509").iterdir()
    return x509.load_pem_x509_certificate(file.read_bytes())


def _revoked(fleet: Path, site: str) -> set[int]:
    """Return the serials that the list on a site's gateway holds."""
    (file,) = (_charon(fleet, site) / "x509crl").iterdir()
    return {each.serial_number for each in read_lists(file.read_text())[0]}


def test_each_gateway_gets_papers_of_its_own_once(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its certificate, its key for root alone, the authority and the list; the other's key is nowhere on it."""
    assert run(["vpn", "init", str(fleet)]) == 0

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    capsys.readouterr()
    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert capsys.readouterr().out.count("3 tunnels, nothing to change") == 2
    for site, other in ((ATTIC, CELLAR), (CELLAR, ATTIC)):
        folder, made = _charon(fleet, site), _certificate(fleet, site)
        text = (folder / "swanctl.conf").read_text()
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"tunnels.{site}.rooms.internal"]
        assert f"id = tunnels.{other}.rooms.internal\n      auth = pubkey" in text
        assert "revocation = strict" in text
        assert [each.stat().st_mode & 0o777 for each in (folder / "private").iterdir()] == [0o600]
        assert len(list((folder / "x509ca").iterdir())) == len(list((folder / "x509crl").iterdir())) == 1
    keys = [next((_charon(fleet, site) / "private").iterdir()).read_text() for site in SITES]
    assert keys[0] != keys[1]


def test_no_key_is_told_or_passed_as_an_argument(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither on the screen nor to a program that everybody sees run."""
    run(["vpn", "init", str(fleet)])
    run(["vpn", "tunnels", str(fleet)])

    told = capsys.readouterr()
    said = (
        told.out + told.err + "".join((fleet.parent / "hosts" / name / "calls").read_text() for name in SITES.values())
    )
    for site in SITES:
        (key,) = (_charon(fleet, site) / "private").iterdir()
        assert not any(line in said for line in key.read_text().splitlines()[1:-1])


@pytest.mark.parametrize("command", ["tunnels", "sync"])
@pytest.mark.parametrize("days", [40, 50])
def test_past_the_half_of_its_life_a_certificate_is_renewed(
    command: str, days: int, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a sync, which a timer runs, as by `vpn tunnels`: each brings it, and the list, to the gateway."""
    _begun(fleet, days * DAY)
    is_renewed, before = days > 45, datetime.now(UTC) + (90 - days) * DAY

    assert run(["vpn", command, str(fleet)]) == 0

    assert ("+ tunnels.attic.rooms.internal" in capsys.readouterr().out) is is_renewed
    for site in SITES:
        assert (_certificate(fleet, site).not_valid_after_utc > before + DAY) is is_renewed
        (listed,) = (_charon(fleet, site) / "x509crl").iterdir()
        end = read_lists(listed.read_text())[0].next_update_utc
        assert end
        assert (end > before + DAY) is is_renewed


def test_a_sync_that_cannot_ask_aws_leaves_gateways_as_they_are(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway gets all its files or none, those of its tunnels to AWS too; the message names the credentials."""
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
    """Each gateway gets a new certificate, and the list that no longer counts the old ones; nothing is restarted."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    old = {site: _certificate(fleet, site).serial_number for site in SITES}
    for name in SITES.values():
        calls_of(fleet.parent / "hosts" / name)

    assert run(["vpn", "tunnels", str(fleet), "--new-keys"]) == 0

    for site, name in SITES.items():
        assert _certificate(fleet, site).serial_number not in old.values()
        assert _revoked(fleet, site) == set(old.values())
        told = [call for call in calls_of(fleet.parent / "hosts" / name) if "enable" not in call]
        assert told == ["systemctl try-reload-or-restart bedplate-ipsec-tunnels.service"]
    assert "revoked" in capsys.readouterr().out


def test_who_is_joined_no_more_is_revoked(fleet: Path) -> None:
    """So is everybody where the file goes back to keys; the papers are taken away."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    serials = {_certificate(fleet, site).serial_number for site in SITES}
    fleet.write_text(TEXT, encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0
    assert run(["vpn", "sync", str(fleet)]) == 0

    assert not (_charon(fleet, ATTIC) / "private").exists() or not any((_charon(fleet, ATTIC) / "private").iterdir())
    assert "secret = 0x" in (_charon(fleet, ATTIC) / "swanctl.conf").read_text()
    listed = read_lists(folder_of(fleet).lists.read_text())[0]
    assert {each.serial_number for each in listed} == serials


def test_a_gateway_that_a_sync_does_not_reach_is_named(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6; the other one has its own."""
    _begun(fleet, 50 * DAY)
    (fleet.parent / "hosts/door.attic").rename(fleet.parent / "away")

    assert run(["vpn", "sync", str(fleet)]) == 6

    assert "door.attic: not reached" in capsys.readouterr().err
    assert (_charon(fleet, CELLAR) / "x509").is_dir()


@pytest.mark.parametrize("command", ["tunnels", "sync"])
def test_a_certificate_that_serves_nobody_costs_no_other_gateway_its_own(
    command: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: it is named with the way out, and keeps what it has; the other one has all of its tunnels."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    file = folder_of(fleet).keys / "tunnels.attic.rooms.internal.pem"
    sound, mine = file.read_text(), _certificate(fleet, ATTIC)
    file.write_text(sound.replace("MII", "mii", 1))
    issue_anew(keys_of("rooms", fleet), (peer_subjects(planned(opened(fleet)))[CELLAR],), datetime.now(UTC), unasked)
    theirs = _certificate(fleet, CELLAR)
    capsys.readouterr()

    assert run(["vpn", command, str(fleet)]) == 6

    told = capsys.readouterr()
    assert "door.attic: the certificate of the tunnels of attic cannot be read" in told.err
    assert "take away tunnels.attic.rooms.internal.pem there" in told.err
    assert "gate.cellar: 3 tunnels" in told.out
    assert _certificate(fleet, ATTIC) == mine
    assert _certificate(fleet, CELLAR) != theirs
    file.unlink()
    assert run(["vpn", command, str(fleet)]) == 0
    assert _certificate(fleet, ATTIC) != mine


def test_without_joined_gateways_nobody_gets_a_certificate(fleet: Path) -> None:
    """The word in the file alone makes none."""
    run(["vpn", "init", str(fleet)])
    fleet.write_text(TEXT.replace(JOINS, "") + BY_CERTIFICATES, encoding="utf-8")

    assert run(["vpn", "tunnels", str(fleet)]) == 0

    assert keys_of("rooms", fleet).roll.issued == {}


def test_regions_know_each_other_by_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sites do, under the names that they have with keys; AWS is not asked."""
    file = tmp_path / "fleet.yaml"
    tunnels = BY_CERTIFICATES.replace("vpn:\n", "")
    file.write_text(REGIONS.replace("vpn:\n", f"vpn:\n{tunnels}"), encoding="utf-8")
    shell_to(tmp_path / "hosts", monkeypatch)
    hosts = {region: site_gateway_at(tmp_path / "hosts" / f"laptops.{region}") for region in (WEST, NORTH)}
    assert run(["plan", str(file), "--write"]) == 0
    assert run(["vpn", "init", str(file)]) == 0
    record_doors(lock_path(file), "pair", PUBLIC, {})

    assert run(["vpn", "tunnels", str(file)]) == 0

    for region, other in ((WEST, NORTH), (NORTH, WEST)):
        folder = hosts[region] / "etc/bedplate/ipsec/tunnels"
        assert f"id = laptops.{other}.pair.internal" in (folder / "swanctl.conf").read_text()
        made = x509.load_pem_x509_certificate((folder / f"x509/{other}.crt").read_bytes())
        assert made.subject.rfc4514_string() == f"CN=laptops.{region}.pair.internal"


def test_status_tells_what_ends(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each gateway, the days of its certificate and of its list; less than 14 is amiss, and names the command."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    capsys.readouterr()

    assert run(["vpn", "status", str(fleet)]) == 3

    told = capsys.readouterr().out
    assert told.count("tunnels' certificate 87 days left   tunnels' list 87 days left") == 2
    assert "ends in" not in told


def test_what_nobody_renews_is_amiss(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway whose papers end within days is told of, before it keeps everybody out."""
    _begun(fleet, 2 * DAY)
    run(["vpn", "tunnels", str(fleet)])
    _begin_anew(fleet, 80.5 * DAY)
    capsys.readouterr()

    run(["vpn", "status", str(fleet)])

    told = capsys.readouterr().out
    assert "warning: door.attic: its certificate for tunnels ends in 9 days: `bedplate vpn sync`" in told
    assert "gate.cellar: its certificate" not in told
