"""Several operators: an older clone, a clock that was ahead, and two commands at the same time."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.cli.vpn_session import keys_of, known_passphrase, now
from bedplate.lock import lock_path, read_lock, record_doors
from bedplate.plan import Record
from tests.conftest import DATA
from tests.testlab.fakes.aws import StubbedSession
from tests.testlab.fakes.gateway import shell_to
from tests.testlab.fleets.variants import HOME, LAPTOP_PLANS_PUBLIC, RESOLVERS
from tests.testlab.keys.authority import moment
from tests.testlab.keys.operator import HOSTS as OPERATOR_HOSTS
from tests.testlab.keys.operator import listed
from tests.testlab.rehearsal.programs import EXAMPLES
from tests.testlab.run import ROOT, need_program
from vpn.authority import number_of, read_lists
from vpn.pki import folder_of
from vpn.signing import relist

# An ssh that waits until somebody lets it go, and is then the one behind it.
_LATE = """#!/bin/sh
touch "$ASKED"
while [ ! -e "$GO" ]; do sleep 0.05; done
exec {ssh} "$@"
"""


def _let_in(gateways: Path) -> "list[set[str]]":
    return [{file.name for file in (gateways / host / "udp.laptops").iterdir()} for host in OPERATOR_HOSTS.values()]


def _clone(fleet: Path) -> Path:
    return Path(shutil.copytree(fleet.parent, fleet.parent.with_name("clone"))) / fleet.name


def test_an_older_clone_is_refused(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sync from a clone without the last change exits with status 6, and the gateways keep what they have."""
    other = _clone(begun)
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    capsys.readouterr()

    assert run(["vpn", "sync", str(other)]) == 6

    assert "is older than the active one" in capsys.readouterr().err
    assert _let_in(gateways) == [{"ada.laptop"}] * 2


def test_a_clock_that_was_ahead_is_made_good(
    begun: Path, gateways: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was signed then is not carried; with the files that were committed before, all goes on."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    folder = folder_of(begun)
    files = (folder.journal, folder.copy, folder.lists)
    kept = [each.read_bytes() for each in files]
    relist(keys_of("lab", begun), now() + timedelta(days=365), known_passphrase(None))

    assert run(["vpn", "sync", str(begun)]) == 2

    assert "The clock was ahead" in capsys.readouterr().err
    for each, text in zip(files, kept, strict=True):
        each.write_bytes(text)
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert _let_in(gateways) == [set(), set()]


def test_an_older_book_never_comes_after_a_newer(begun: Path, gateways: Path, tmp_path: Path) -> None:
    """Two real processes: a sync that is slow to arrive, and a revocation meanwhile. Both end well, and it stands."""
    run(["vpn", "add", "ada", str(begun)])
    late, asked, go = tmp_path / "late", tmp_path / "asked", tmp_path / "go"
    late.mkdir()
    (late / "ssh").write_text(_LATE.format(ssh=shutil.which("ssh")))
    (late / "ssh").chmod(0o755)
    env = {**os.environ, "PATH": f"{late}:{os.environ['PATH']}", "ASKED": str(asked), "GO": str(go)}
    command = [sys.executable, "-m", "bedplate", "vpn", "sync", str(begun)]

    slow = subprocess.Popen(command, env={**env, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    while not asked.exists():
        assert slow.poll() is None, slow.communicate()[1]
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    go.touch()
    errors = slow.communicate(timeout=120)[1]

    assert slow.returncode == 0, errors
    assert _let_in(gateways) == [set()] * 2
    assert [len(read_lists((gateways / host / "crl.pem").read_text())[0]) for host in OPERATOR_HOSTS.values()] == [1, 1]


def _without(lab: Path, user: str) -> None:
    lines = lab.read_text().splitlines(keepends=True)
    lab.write_text("".join(line for line in lines if not line.startswith(f"  {user}:")))


def _cli_vpn_sync_let_in(gateways: Path, host: str) -> set[str]:
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
    assert set(listed(begun, capsys)) == {"ada.laptop", *(f"gateway.{place}.lab.internal" for place in OPERATOR_HOSTS)}
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [{"ada.laptop"}] * 2


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

    assert "gateway.cellar.lab.internal cannot be used: not a certificate" in capsys.readouterr().err
    assert [len(read_lists((gateways / host / "crl.pem").read_text())[0]) for host in OPERATOR_HOSTS.values()] == [1, 1]
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [set(), set()]


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
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [set(), set()]


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
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [set(), set()]


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

    assert "not in `people`" in before["grace.phone"]
    assert not [name for name in listed(begun, capsys) if name.startswith("grace")]
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [{"ada.laptop"}] * 2


def test_a_revoked_laptop_is_refused_everywhere(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its gateways have the list that names it; the person's other machine goes on."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "ada", str(begun), "--device", device])
    run(["vpn", "sync", str(begun)])

    assert run(["vpn", "revoke", "ada", str(begun), "--device", "phone"]) == 0

    for host in OPERATOR_HOSTS.values():
        assert _cli_vpn_sync_let_in(gateways, host) == {"ada.laptop"}
        assert len(read_lists((gateways / host / "crl.pem").read_text())[0]) == 1
    assert "ada.laptop" in listed(begun, capsys)


def test_a_gateway_that_was_not_reached_is_named(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6; what was signed stays signed, the other gateway has it, and a sync brings it to the first."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    (gateways / OPERATOR_HOSTS["cellar"]).rename(gateways / "away")
    capsys.readouterr()

    assert run(["vpn", "revoke", "ada", str(begun)]) == 6

    told = capsys.readouterr()
    assert "cellar: not reached: ssh: connect to host gate.cellar port 22: Connection timed out" in told.err
    assert "us-west-2 was told" in told.out
    (gateways / "away").rename(gateways / OPERATOR_HOSTS["cellar"])
    assert run(["vpn", "sync", str(begun)]) == 0
    assert [_cli_vpn_sync_let_in(gateways, host) for host in OPERATOR_HOSTS.values()] == [set(), set()]


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

    assert "error: gate.cellar: no OpenVPN daemon is installed: apply the role openvpn" in told
    assert {each["gateway"] for each in document["faults"]} == set(OPERATOR_HOSTS.values())


def test_a_gateway_that_was_never_brought_its_tunnels_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plan: each of them is named, though the gateway knows of none."""
    assert run(["vpn", "status", str(begun)]) == 3

    assert "error: gate.cellar: tunnels us-west-2-1, us-west-2-2, us-" in capsys.readouterr().out


def test_a_gateway_that_is_a_list_behind_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that was away while somebody was revoked, and no other, until a sync."""
    run(["vpn", "add", "ada", str(begun)])
    for host in OPERATOR_HOSTS.values():
        (gateways / host / "udp.conf").write_text("")
    run(["vpn", "sync", str(begun)])
    (gateways / OPERATOR_HOSTS["cellar"]).rename(gateways / "away")
    run(["vpn", "revoke", "ada", str(begun)])
    (gateways / "away").rename(gateways / OPERATOR_HOSTS["cellar"])

    def behind() -> list[str]:
        capsys.readouterr()
        assert run(["vpn", "status", str(begun)]) == 3
        return [line for line in capsys.readouterr().out.splitlines() if "revocation list is number" in line]

    told = behind()
    run(["vpn", "sync", str(begun)])

    fault = "the revocation list is number 1, the newest is 2: run `bedplate vpn sync`"
    assert told == [f"error: gate.cellar: {fault}"]
    assert behind() == []


def test_a_gateway_that_does_not_answer_is_told(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: whether it carries is not known."""
    for host in OPERATOR_HOSTS.values():
        (gateways / host).rename(gateways / f"{host}.away")

    assert run(["vpn", "status", str(begun)]) == 6

    assert "gate.cellar   not reached: ssh: connect to host gate.cellar" in capsys.readouterr().out


def _stands(account: StubbedSession, *public: IPv4Address) -> None:
    wanted = [{"Name": "tag:Name", "Values": ["lab-laptops"]}]
    found = {"Addresses": [{"PublicIp": str(each)} for each in public]}
    account.answers("ec2", HOME, "describe_addresses", found, Filters=wanted)


def _resolves(account: StubbedSession) -> None:
    wanted = [{"Name": "Name", "Values": ["lab-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
    found = {"ResolverEndpoints": [{"Id": "rslvr-in-1"}]}
    account.answers("route53resolver", HOME, "list_resolver_endpoints", found, Filters=wanted)
    told = {"IpAddresses": [{"Ip": str(each)} for each in reversed(RESOLVERS)]}
    asked = {"ResolverEndpointId": "rslvr-in-1"}
    account.answers("route53resolver", HOME, "list_resolver_endpoint_ip_addresses", told, **asked)


def _lock(file: Path) -> Record:
    return read_lock(file.with_name("fleet.lock"), "lab")


def test_addresses_that_aws_gave_out_are_kept(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are found by the names that the stacks give; the site's gateway is asked of nobody."""
    _stands(account, LAPTOP_PLANS_PUBLIC)
    _resolves(account)

    assert run(["vpn", "record", str(lab)]) == 0

    assert dict(_lock(lab).gateways) == {HOME: LAPTOP_PLANS_PUBLIC}
    assert dict(_lock(lab).resolvers) == {HOME: RESOLVERS}
    assert capsys.readouterr().out.splitlines() == [
        "us-west-2   gateway 52.1.2.3",
        "us-west-2   resolver 10.64.32.5, 10.64.64.7",
    ]


def test_a_gateway_that_does_not_stand_is_not_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and the lock is as it was: a profile with half of its addresses would be worse than none."""
    _stands(account)
    _resolves(account)

    assert run(["vpn", "record", str(lab)]) == 2

    assert not lab.with_name("fleet.lock").exists()
    told = capsys.readouterr().err
    assert "nothing was recorded: us-west-2: us-west-2 has 0 addresses that are called lab-laptops" in told
    assert "`pulumi up -s lab.us-west-2` first" in told


def test_addresses_may_be_given_by_hand(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of AWS then; what another took the place of is told."""
    given = ["--address", "us-west-2=52.1.2.3", "--resolver", "us-west-2=10.64.64.7,10.64.32.5"]
    assert run(["vpn", "record", str(lab), *given]) == 0
    assert run(["vpn", "record", str(lab), "--address", "us-west-2=52.9.9.9"]) == 0

    assert _lock(lab).gateways[HOME] == IPv4Address("52.9.9.9")
    assert _lock(lab).resolvers[HOME] == RESOLVERS
    assert "us-west-2   gateway 52.9.9.9   was 52.1.2.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--address", "cellar=8.20.30.40", "'cellar' has none"),
        ("--address", "us-east-1=52.1.2.3", "'us-east-1' has none"),
        ("--address", "us-west-2=52.1.2", "Expected 4 octets"),
        ("--address", "us-west-2=52.1.2.3,52.1.2.4", "--address names 2 addresses"),
        ("--resolver", "eu-north-1=10.66.0.5", "'eu-north-1' has none"),
        ("--resolver", "us-west-2", "Address cannot be empty"),
        ("--address", "us-west-2=0.0.0.0", "nobody is reached at 0.0.0.0 (this network, RFC 791)"),
        ("--address", "us-west-2=127.0.0.1", "nobody is reached at 127.0.0.1 (loopback, RFC 1122)"),
        ("--address", "us-west-2=169.254.169.253", "(link-local, RFC 3927)"),
        ("--address", "us-west-2=224.0.0.1", "(multicast, RFC 5771)"),
        ("--address", "us-west-2=255.255.255.255", "(reserved, RFC 1112)"),
        ("--resolver", "us-west-2=10.64.32.5,0.0.0.0", "nobody is reached at 0.0.0.0"),
        ("--resolver", "us-west-2=127.0.0.53", "nobody is reached at 127.0.0.53"),
    ],
)
def test_an_address_of_nothing_is_refused(
    option: str, value: str, told: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with what to write instead."""
    assert run(["vpn", "record", str(lab), option, value]) == 2

    assert told in capsys.readouterr().err
    assert not lab.with_name("fleet.lock").exists()


def test_the_packet_filter_of_a_laptop_is_printed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is proved in the laboratory; it holds no secret."""
    assert run(["vpn", "guard", str(lab)]) == 0

    assert capsys.readouterr().out == (DATA / "laptops" / "laptop.nft").read_text()


def test_a_fleet_without_gateways_has_no_packet_filter_for_laptops(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one would look as if it kept something."""
    assert run(["vpn", "guard", str(EXAMPLES / "minimal.yaml")]) == 2

    assert "no gateway of laptops" in capsys.readouterr().err


def test_a_pool_that_is_full_becomes_a_wider_one(here: Path) -> None:
    """By the page's own command, once the file says so; whoever has a profile dials where they dialled."""
    record_doors(lock_path(here), "lab", {HOME: LAPTOP_PLANS_PUBLIC}, {HOME: RESOLVERS})
    assert run(["plan", "--write"]) == 0
    here.write_text(here.read_text().replace("pool: /22", "pool: /20"))

    assert run(["plan", "--write"]) == 2
    assert run(["plan", "--write", "--release", "pool/us-west-2", "--release", "pool/cellar"]) == 0

    lock = json.loads(lock_path(here).read_text())
    assert [lock["blocks"][f"pool/{place}"].rpartition("/")[2] for place in (HOME, "cellar")] == ["20", "20"]
    assert lock["gateways"] == {HOME: str(LAPTOP_PLANS_PUBLIC)}


SERVICE, TIMER = "bedplate-vpn-lab.service", "bedplate-vpn-lab.timer"
HOSTS = ("laptops.us-west-2", "gate.cellar")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return a copy of the lab's file in a folder whose name systemd would read otherwise than it is written."""
    folder = tmp_path / "my $HOME 100% fleet"
    folder.mkdir()
    file = Path(shutil.copy(EXAMPLES / "lab.yaml", folder / "fleet.yaml"))
    record_doors(lock_path(file), "lab", {HOME: LAPTOP_PLANS_PUBLIC}, {HOME: RESOLVERS})
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
    for command in ("vpn", "vpn_tunnels"):
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
