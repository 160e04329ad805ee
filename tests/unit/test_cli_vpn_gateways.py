"""`vpn sync`, `revoke`, `status`, `record`, `guard` and `timer`, with real gateway agents behind a fake ssh."""

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
from bedplate.cli.options import Terminal
from bedplate.lock import lock_path, read_lock, record_endpoints
from bedplate.operate.keys import keys_of, known_passphrase, now
from bedplate.plan import Record
from tests.conftest import DATA
from tests.testlab.fakes.aws import StubbedSession
from tests.testlab.fakes.gateway import shell_to
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, HOME, RESOLVERS
from tests.testlab.keys.authority import moment
from tests.testlab.keys.operator import HOSTS, listed
from tests.testlab.rehearsal.programs import EXAMPLES
from tests.testlab.run import ROOT, need_program
from vpn.authority import crl_number, parse_crls
from vpn.pki import folder_of
from vpn.signing import renew_crl

# An ssh that waits until the file GO exists and then runs the fake ssh.
_LATE = """#!/bin/sh
touch "$ASKED"
while [ ! -e "$GO" ]; do sleep 0.05; done
exec {ssh} "$@"
"""


def _admitted(gateways: Path) -> list[set[str]]:
    """Return the laptops that each gateway admits."""
    return [{file.name for file in (gateways / host / "udp.laptops").iterdir()} for host in HOSTS.values()]


def _revoked(gateways: Path) -> list[int]:
    """Return the number of revoked certificates in each gateway's list."""
    return [len(parse_crls((gateways / host / "crl.pem").read_text())[0]) for host in HOSTS.values()]


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
    assert _admitted(gateways) == [{"ada.laptop"}] * 2


def test_a_list_signed_by_a_clock_ahead_is_not_sent(
    begun: Path, gateways: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list is refused; with the committed files restored, commands work again."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    folder = folder_of(begun)
    files = (folder.journal, folder.copy, folder.lists)
    committed = [file.read_bytes() for file in files]
    renew_crl(keys_of("lab", Terminal(begun)), now() + timedelta(days=365), known_passphrase(Terminal(begun)))

    assert run(["vpn", "sync", str(begun)]) == 2

    assert "The clock was ahead" in capsys.readouterr().err
    for file, content in zip(files, committed, strict=True):
        file.write_bytes(content)
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert _admitted(gateways) == [set(), set()]


def test_an_older_access_list_never_replaces_a_newer(begun: Path, gateways: Path, tmp_path: Path) -> None:
    """Of two real processes, a slow sync and a revocation, both succeed, and the revocation stays in force."""
    run(["vpn", "add", "ada", str(begun)])
    late, started, go = tmp_path / "late", tmp_path / "asked", tmp_path / "go"
    late.mkdir()
    (late / "ssh").write_text(_LATE.format(ssh=shutil.which("ssh")))
    (late / "ssh").chmod(0o755)
    env = {**os.environ, "PATH": f"{late}:{os.environ['PATH']}", "ASKED": str(started), "GO": str(go)}
    command = [sys.executable, "-m", "bedplate", "vpn", "sync", str(begun)]

    slow = subprocess.Popen(command, env={**env, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    while not started.exists():
        assert slow.poll() is None, slow.communicate()[1]
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    go.touch()
    errors = slow.communicate(timeout=120)[1]

    assert slow.returncode == 0, errors
    assert _admitted(gateways) == [set()] * 2
    assert _revoked(gateways) == [1, 1]


def _without(lab: Path, user: str) -> None:
    lines = lab.read_text().splitlines(keepends=True)
    lab.write_text("".join(line for line in lines if not line.startswith(f"  {user}:")))


def test_a_sync_issues_certificates_to_gateways_and_admits_laptops(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second sync signs nothing."""
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    journal = folder_of(begun).journal.read_bytes()

    assert run(["vpn", "sync", str(begun)]) == 0

    assert folder_of(begun).journal.read_bytes() == journal
    assert set(listed(begun, capsys)) == {"ada.laptop", *(f"gateway.{place}.lab.internal" for place in HOSTS)}
    assert _admitted(gateways) == [{"ada.laptop"}] * 2


def test_a_gateways_lost_key_is_replaced(begun: Path, gateways: Path) -> None:
    """The gateway gets a new certificate, and the previous one is revoked."""
    assert run(["vpn", "sync", str(begun)]) == 0
    before = (gateways / "gate.cellar" / "server.crt").read_bytes()
    (folder_of(begun).keys / "gateway.cellar.lab.internal.pem").unlink()

    assert run(["vpn", "sync", str(begun)]) == 0

    assert (gateways / "gate.cellar" / "server.crt").read_bytes() != before
    assert _revoked(gateways) == [1, 1]


def test_a_revoked_gateway_is_replaced(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next sync gives the gateway new keys; the tls-crypt-v2 key changes everywhere, also in profiles."""
    record_endpoints(lock_path(begun), "lab", {HOME: GATEWAY_ADDRESS}, {})
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0

    def tls_crypt(place: str) -> str:
        return (gateways / HOSTS[place] / "tls-crypt-v2.key").read_text()

    def profile_key() -> str:
        capsys.readouterr()
        assert run(["vpn", "show", "ada", str(begun)]) == 0
        return capsys.readouterr().out.partition("<tls-crypt-v2>")[2]

    old, profile = tls_crypt("cellar"), profile_key()
    serial = keys_of("lab", Terminal(begun)).certificates.current("gateway.cellar.lab.internal")

    assert run(["vpn", "revoke", "--gateway", "cellar", str(begun)]) == 0

    assert "only then `bedplate vpn sync`" in capsys.readouterr().out
    assert tls_crypt("cellar") == old
    assert tls_crypt("us-west-2") != old
    assert profile_key() != profile
    assert serial
    assert serial.serial in keys_of("lab", Terminal(begun)).certificates.revoked
    assert run(["vpn", "sync", str(begun)]) == 0
    assert tls_crypt("cellar") == tls_crypt("us-west-2")
    assert _revoked(gateways) == [1, 1]
    assert run(["vpn", "add", "ada", str(begun), "--device", "phone"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gateway"], "gateway has no certificate"),
        (["cellar"], "run `bedplate vpn revoke --gateway cellar`"),
        (["--gateway", "celar"], "no gateway for laptops in 'celar'"),
    ],
)
def test_gateways_are_revoked_by_their_place_only(
    words: list[str], message: str, begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names begin with `gateway`, which is no person. Nothing is revoked: status 2."""
    assert run(["vpn", "sync", str(begun)]) == 0

    assert run(["vpn", "revoke", *words, str(begun)]) == 2

    assert message in capsys.readouterr().err
    assert not keys_of("lab", Terminal(begun)).certificates.revoked


def test_a_certificate_of_a_laptop_is_not_sent_as_a_gateways(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway whose key file was replaced by a laptop's keeps its certificate: status 6."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    keys = folder_of(begun).keys
    before = (gateways / "gate.cellar" / "server.crt").read_bytes()
    shutil.copy(keys / "ada.laptop.pem", keys / "gateway.cellar.lab.internal.pem")

    assert run(["vpn", "sync", str(begun)]) == 6

    error = capsys.readouterr().err
    assert "the certificate of the gateway in cellar does not allow the use server" in error
    assert (gateways / "gate.cellar" / "server.crt").read_bytes() == before


def test_a_damaged_key_does_not_delay_a_revocation(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both gateways get the list, and the damaged key is named: status 6."""
    run(["vpn", "add", "grace", str(begun)])
    run(["vpn", "sync", str(begun)])
    (folder_of(begun).keys / "gateway.cellar.lab.internal.pem").write_text("half of a\n")
    _without(begun, "grace")

    assert run(["vpn", "sync", str(begun)]) == 6

    assert "gateway.cellar.lab.internal cannot be used: not a certificate" in capsys.readouterr().err
    assert _revoked(gateways) == [1, 1]
    assert _admitted(gateways) == [set(), set()]


def test_an_invalid_fleet_file_does_not_prevent_a_revocation(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The revocation is signed. No gateway is updated, since they are unknown: status 6."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    valid = begun.read_text()
    begun.write_text(valid.replace("pool: /22", "pool: /99"))

    assert run(["vpn", "revoke", "ada", str(begun)]) == 6

    output = capsys.readouterr()
    assert "revoked, but no gateway was updated: " in output.err
    begun.write_text(valid)
    assert "ada.laptop" not in listed(begun, capsys)
    assert run(["vpn", "sync", str(begun)]) == 0
    assert _admitted(gateways) == [set(), set()]


def test_a_revocation_that_reaches_no_gateway_is_partial(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error after signing is status 6, of `revoke` and `sync`; the next `sync` sends the list."""
    for user in ("ada", "grace"):
        run(["vpn", "add", user, str(begun)])
    run(["vpn", "sync", str(begun)])
    _without(begun, "grace")
    nowhere = ["--ssh-config", str(begun.with_name("none"))]

    assert run(["vpn", "revoke", "ada", str(begun), *nowhere]) == 6
    assert "revoked, but no gateway was updated: no such file" in capsys.readouterr().err
    assert run(["vpn", "sync", str(begun), *nowhere]) == 6
    assert "certificates signed, but not all gateways updated: no such file" in capsys.readouterr().err
    assert run(["vpn", "sync", str(begun), *nowhere]) == 2

    assert run(["vpn", "sync", str(begun)]) == 0
    assert _admitted(gateways) == [set(), set()]


def test_a_sync_revokes_people_who_left_the_fleet_file(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All their devices are revoked at every gateway; until then `vpn list` warns."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "grace", str(begun), "--device", device])
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    _without(begun, "grace")
    before = listed(begun, capsys)

    assert run(["vpn", "sync", str(begun)]) == 0

    assert "not in `people`" in before["grace.phone"]
    assert not [name for name in listed(begun, capsys) if name.startswith("grace")]
    assert _admitted(gateways) == [{"ada.laptop"}] * 2


def test_a_revoked_device_is_refused_by_every_gateway(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person's other device stays valid."""
    for device in ("laptop", "phone"):
        run(["vpn", "add", "ada", str(begun), "--device", device])
    run(["vpn", "sync", str(begun)])

    assert run(["vpn", "revoke", "ada", str(begun), "--device", "phone"]) == 0

    assert _admitted(gateways) == [{"ada.laptop"}] * 2
    assert _revoked(gateways) == [1, 1]
    assert "ada.laptop" in listed(begun, capsys)


def test_an_unreachable_gateway_is_named(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6: the revocation is signed and sent to the other gateway, and a sync sends it to the first."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    (gateways / HOSTS["cellar"]).rename(gateways / "away")
    capsys.readouterr()

    assert run(["vpn", "revoke", "ada", str(begun)]) == 6

    output = capsys.readouterr()
    assert "cellar: no response on the SSH port" in output.err
    assert "us-west-2: updated" in output.out
    (gateways / "away").rename(gateways / HOSTS["cellar"])
    assert run(["vpn", "sync", str(begun)]) == 0
    assert _admitted(gateways) == [set(), set()]


def test_revoking_twice_is_harmless(begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time nothing is signed. A person without a certificate is an error."""
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0

    assert "nothing to revoke" in capsys.readouterr().out
    assert run(["vpn", "revoke", "grace", str(begun)]) == 2


def test_status_reports_a_gateway_without_openvpn(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 3: the gateway answers and has its keys, but no daemon runs. The JSON document says the same."""
    run(["vpn", "sync", str(begun)])
    capsys.readouterr()

    assert run(["vpn", "status", str(begun)]) == 3
    output = capsys.readouterr().out
    assert run(["vpn", "status", str(begun), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)

    assert "error: gate.cellar: no OpenVPN daemon is installed: apply the role openvpn" in output
    assert {fault["gateway"] for fault in document["faults"]} == set(HOSTS.values())


def test_status_reports_tunnels_that_were_never_sent(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan names them, although the gateway knows none."""
    assert run(["vpn", "status", str(begun)]) == 3

    assert "error: gate.cellar: tunnels us-west-2-1, us-west-2-2, us-" in capsys.readouterr().out


def test_status_reports_an_outdated_revocation_list(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gateway that was unreachable during a revocation is named, until a sync."""
    run(["vpn", "add", "ada", str(begun)])
    for host in HOSTS.values():
        (gateways / host / "udp.conf").write_text("")
    run(["vpn", "sync", str(begun)])
    (gateways / HOSTS["cellar"]).rename(gateways / "away")
    run(["vpn", "revoke", "ada", str(begun)])
    (gateways / "away").rename(gateways / HOSTS["cellar"])

    def outdated() -> list[str]:
        capsys.readouterr()
        assert run(["vpn", "status", str(begun)]) == 3
        return [line for line in capsys.readouterr().out.splitlines() if "revocation list is number" in line]

    faults = outdated()
    run(["vpn", "sync", str(begun)])

    fault = "the revocation list is number 1, the newest is 2: run `bedplate vpn sync`"
    assert faults == [f"error: gate.cellar: {fault}"]
    assert outdated() == []


def test_status_reports_a_gateway_that_does_not_answer(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6: the state of the gateway is unknown. Before `vpn up` that is the next step."""
    for host in HOSTS.values():
        (gateways / host).rename(gateways / f"{host}.away")

    assert run(["vpn", "status", str(begun)]) == 6

    output = capsys.readouterr().out
    assert "gate.cellar   no response on the SSH port" in output
    assert "  fix  no host key is recorded: run `bedplate vpn up` first" in output


def _has_addresses(account: StubbedSession, *public: IPv4Address) -> None:
    filters = [{"Name": "tag:Name", "Values": ["lab-laptops"]}]
    answer = {"Addresses": [{"PublicIp": str(address)} for address in public]}
    account.answers("ec2", HOME, "describe_addresses", answer, Filters=filters)


def _has_resolver(account: StubbedSession) -> None:
    filters = [{"Name": "Name", "Values": ["lab-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
    endpoints = {"ResolverEndpoints": [{"Id": "rslvr-in-1"}]}
    account.answers("route53resolver", HOME, "list_resolver_endpoints", endpoints, Filters=filters)
    addresses = {"IpAddresses": [{"Ip": str(address)} for address in reversed(RESOLVERS)]}
    operation = "list_resolver_endpoint_ip_addresses"
    account.answers("route53resolver", HOME, operation, addresses, ResolverEndpointId="rslvr-in-1")


def _lock(file: Path) -> Record:
    return read_lock(file.with_name("fleet.lock"), "lab")


def test_addresses_from_aws_are_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names of the stacks' resources identify the addresses. Addresses of sites are not asked for."""
    _has_addresses(account, GATEWAY_ADDRESS)
    _has_resolver(account)

    assert run(["vpn", "record", str(lab)]) == 0

    assert dict(_lock(lab).gateways) == {HOME: GATEWAY_ADDRESS}
    assert dict(_lock(lab).resolvers) == {HOME: RESOLVERS}
    assert capsys.readouterr().out.splitlines() == [
        "us-west-2   gateway 52.1.2.3",
        "us-west-2   resolver 10.64.32.5, 10.64.64.7",
    ]


def test_sites_need_a_resolver_without_laptops(account: StubbedSession, lab: Path) -> None:
    """The machines of a site ask the resolver of the home region."""
    text = lab.read_text()
    lab.write_text(text[: text.index("\nvpn:")] + text[text.index("\npeople:") :])
    _has_resolver(account)

    assert run(["vpn", "record", str(lab)]) == 0

    assert dict(_lock(lab).resolvers) == {HOME: RESOLVERS}


def test_nothing_is_recorded_without_a_gateway(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and the lock does not change: a profile with half of the addresses would not work."""
    _has_addresses(account)
    _has_resolver(account)

    assert run(["vpn", "record", str(lab)]) == 2

    assert not lab.with_name("fleet.lock").exists()
    output = capsys.readouterr().err
    assert "nothing was recorded: us-west-2: us-west-2: 0 elastic addresses named lab-laptops" in output
    assert "`bedplate up --stack us-west-2` first" in output


def test_a_replaced_address_is_shown(account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the address before: profiles that have it no longer connect."""
    record_endpoints(lab.with_name("fleet.lock"), "lab", {HOME: IPv4Address("52.9.9.9")}, {})
    _has_addresses(account, GATEWAY_ADDRESS)
    _has_resolver(account)

    assert run(["vpn", "record", str(lab)]) == 0

    assert "us-west-2   gateway 52.1.2.3   was 52.9.9.9" in capsys.readouterr().out


def test_the_nftables_rules_of_a_laptop_are_printed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rules equal the file that the network tests use."""
    assert run(["vpn", "guard", str(lab)]) == 0

    assert capsys.readouterr().out == (DATA / "laptops" / "laptop.nft").read_text()


def test_a_fleet_without_gateways_has_no_nftables_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty rule set would look like a working one: status 2."""
    assert run(["vpn", "guard", str(EXAMPLES / "minimal.yaml")]) == 2

    assert "no gateway for laptops" in capsys.readouterr().err


def test_a_full_pool_is_widened(here: Path) -> None:
    """The command in docs/vpn.md widens it after an edit. Gateways keep their addresses, so profiles stay valid."""
    record_endpoints(lock_path(here), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    assert run(["plan", "--write"]) == 0
    here.write_text(here.read_text().replace("pool: /22", "pool: /20"))

    assert run(["plan", "--write"]) == 2
    assert run(["plan", "--write", "--release", "pool/us-west-2", "--release", "pool/cellar"]) == 0

    lock = json.loads(lock_path(here).read_text())
    assert [lock["blocks"][f"pool/{place}"].rpartition("/")[2] for place in (HOME, "cellar")] == ["20", "20"]
    assert lock["gateways"] == {HOME: str(GATEWAY_ADDRESS)}


SERVICE, TIMER = "bedplate-vpn-lab.service", "bedplate-vpn-lab.timer"


CLOCKS = ("gateways", "people", "vpn_setup")


@pytest.fixture
def odd_path(tmp_path: Path) -> Path:
    """Return a copy of the lab's file in a folder whose name contains special characters of systemd."""
    folder = tmp_path / "my $HOME 100% fleet"
    folder.mkdir()
    file = Path(shutil.copy(EXAMPLES / "lab.yaml", folder / "fleet.yaml"))
    record_endpoints(lock_path(file), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    return file


@pytest.fixture
def old_gateways(odd_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of both gateways; their authority was created 46 days ago and has signed nothing since."""
    need_program("openssl")
    _set_clock(moment() - timedelta(days=46), monkeypatch)
    assert run(["vpn", "init", str(odd_path)]) == 0
    _set_clock(moment(), monkeypatch)
    for host in HOSTS.values():
        (tmp_path / "hosts" / host).mkdir(parents=True)
        shutil.copy(folder_of(odd_path).authority, tmp_path / "hosts" / host / "ca.crt")
    shell_to(tmp_path / "hosts", monkeypatch)
    return tmp_path / "hosts"


def _set_clock(time: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in CLOCKS:
        monkeypatch.setattr(f"bedplate.operate.{module}.now", lambda: time)


def _units(fleet: Path, folder: Path, *options: str) -> dict[str, str]:
    assert run(["vpn", "timer", str(fleet), "--write", str(folder), *options]) == 0
    return {unit.name: unit.read_text() for unit in folder.iterdir()}


def _command(service: str) -> list[str]:
    """Return the arguments of a unit's command, parsed as systemd does."""
    (line,) = (line for line in service.splitlines() if line.startswith("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]


def test_systemd_accepts_the_units(odd_path: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing for the units, and an unknown setting in a changed one."""
    need_program("systemd-analyze")
    units = _units(odd_path, tmp_path / "units")
    verify = ("systemd-analyze", "verify", "--man=no", str(tmp_path / "units" / TIMER))

    good = subprocess.run(verify, capture_output=True, text=True, check=False)
    (tmp_path / "units" / SERVICE).write_text(units[SERVICE].replace("RestartSec", "RestartEver"))
    bad = subprocess.run(verify, capture_output=True, text=True, check=False)

    assert set(units) == {SERVICE, TIMER}
    assert f"{tmp_path / 'units'}" not in good.stderr
    assert "RestartEver" in bad.stderr


def test_the_timer_renews_the_list_and_updates_gateways(odd_path: Path, old_gateways: Path, tmp_path: Path) -> None:
    """A list past half of its lifetime is signed again and sent to both gateways."""
    command = _command(_units(odd_path, tmp_path / "units")[SERVICE])

    assert command[1:5] == ["-m", "bedplate", "vpn", "sync"]
    assert run(command[3:]) == 0

    lists = {(old_gateways / host / "crl.pem").read_text() for host in HOSTS.values()}
    assert {crl_number(parse_crls(text)[0]) for text in lists} == {2}


def test_the_timers_options_are_absolute_paths(odd_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service runs the command in another folder."""
    monkeypatch.chdir(odd_path.parent)

    command = _command(_units(Path("fleet.yaml"), tmp_path / "units", "--passphrase-file", "words")[SERVICE])

    assert command[5:] == [str(odd_path), "--passphrase-file", str(odd_path.parent / "words")]


def test_a_folder_that_cannot_be_created_is_named(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 4."""
    assert run(["vpn", "timer", str(lab), "--write", str(lab / "units")]) == 4

    assert str(lab / "units") in capsys.readouterr().err
