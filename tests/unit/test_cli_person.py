"""`bedplate person invite` and `remove`, with real gateway agents behind a fake ssh. The apply of roles is a fake."""

import json
import os
import pwd
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import BedplateError, MachineError
from bedplate.lock import lock_path, read_lock, record_endpoints, record_host_keys
from bedplate.nodes.apply import Target
from bedplate.operate.keys import keys_of
from bedplate.programs.bp.hub import SSH_OPTIONS
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.fakes.laptop import hub_certificate
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, HOME, RESOLVERS
from tests.testlab.keys.operator import HOSTS, listed, lose_credentials
from tests.testlab.run import need_program
from vpn.authority import Reason

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
MACHINES = ("gate.cellar", "nas.cellar", "titan-01.cellar", "titan-02.cellar", "titan-03.cellar", HOSTS[HOME])


@pytest.fixture
def fleet(begun: Path, gateways: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the lab without groups, with recorded plan, addresses and host keys; its folder is current."""
    text = begun.read_text().replace("use: kubernetes}", "use: ssh}")
    begun.write_text(text[: text.index("\ngroups:")] + text[text.index("\nstorage:") : text.index("\nkubernetes:")])
    assert run(["plan", str(begun), "--write"]) == 0
    record_endpoints(lock_path(begun), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})
    for name in MACHINES:
        record_host_keys(lock_path(begun), "lab", name, (KEY,), replace_known=False)
    monkeypatch.chdir(begun.parent)
    return begun


def _files(archive: Path) -> dict[str, str]:
    with ZipFile(archive) as opened:
        return {entry.filename: opened.read(entry).decode() for entry in opened.infolist() if not entry.is_dir()}


def _delete(fleet: Path, name: str) -> None:
    lines = fleet.read_text().splitlines(keepends=True)
    fleet.write_text("".join(line for line in lines if not line.startswith(f"  {name}:")))


def test_an_archive_has_all_that_a_person_needs(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile of `vpn show`, all machines that the person may use, their host keys, and instructions."""
    assert run(["person", "invite", "grace"]) == 0

    files = _files(Path("grace.zip"))
    capsys.readouterr()
    run(["vpn", "show", "grace"])
    assert files["lab/lab.ovpn"] == capsys.readouterr().out
    hosts = set(re.findall(r"HostKeyAlias (\S+)\.lab\.internal", files["lab/config"]))
    assert hosts == {name for name in MACHINES if name.startswith("titan-")}
    assert {line.split(".lab.internal")[0] for line in files["lab/known_hosts"].splitlines()} == hosts
    readme = files["lab/README.txt"]
    assert "titan-03.cellar (4 x titan-x)" in readme
    assert "nas.cellar" not in readme
    assert all(word in readme for word in ("/home/grace", "/data", "/scratch/grace", "research-infra@lab.example"))
    assert not re.search(r"\$\w*[a-z]", readme.replace("$HOME", ""))


def test_ssh_reads_the_configuration_of_an_archive(fleet: Path, tmp_path: Path) -> None:
    """The client logs in as the person, and accepts only the host keys of the archive."""
    need_program("ssh")
    run(["person", "invite", "grace"])
    with ZipFile("grace.zip") as archive:
        archive.extractall(tmp_path)

    command = ("/usr/bin/ssh", "-G", "-F", str(tmp_path / "lab/config"), "titan-03")
    settings = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()

    # ssh takes the home folder from the account, not from $HOME.
    keys = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh/lab/known_hosts"
    expected = ("user grace", "hostname 192.168.40.23", "stricthostkeychecking true", f"userknownhostsfile {keys}")
    assert set(expected) <= set(settings)


def test_an_archive_is_private_and_reproducible(fleet: Path) -> None:
    """The file and its entries have mode 0600; a second run issues no certificate and writes the same bytes."""
    run(["person", "invite", "grace"])
    first = Path("grace.zip").read_bytes()

    assert run(["person", "invite", "grace", "--write", "again.zip"]) == 0

    assert Path("again.zip").read_bytes() == first
    assert Path("again.zip").stat().st_mode & 0o777 == 0o600
    with ZipFile("again.zip") as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    assert modes.pop("lab/") == 0o700
    assert set(modes.values()) == {0o600}


class HubMachine:
    """The machine of the hub, which answers `person invite`, or raises an error."""

    def __init__(self, answer: str | BedplateError) -> None:
        self.answer = answer
        self.commands: list[tuple[str, ...]] = []

    def run(self, target: Target, *command: str) -> str:
        """Answer a command."""
        self.commands.append((target.node.name, *command))
        if isinstance(self.answer, BedplateError):
            raise self.answer
        return self.answer


@pytest.fixture
def hub(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubMachine:
    """Return the machine of the hub of the fleet; its host key is not recorded."""
    fleet.write_text(f"{fleet.read_text()}\nhub: {{region: {HOME}}}\n")
    assert run(["plan", str(fleet), "--write"]) == 0
    machine = HubMachine(hub_certificate("hub.lab.internal", ec.generate_private_key(ec.SECP256R1())).decode())
    monkeypatch.setattr("bedplate.operate.people.run", machine.run)
    return machine


def test_the_archive_of_a_fleet_with_a_hub_has_bp(fleet: Path, hub: HubMachine, tmp_path: Path) -> None:
    """The hub's certificate is read by ssh, README tells the commands, and a second archive has the same bytes."""
    need_program("ssh")
    record_host_keys(lock_path(fleet), "lab", f"hub.{HOME}", (KEY,), replace_known=False)
    assert [run(["person", "invite", "grace", "--write", name]) for name in ("grace.zip", "again.zip")] == [0, 0]
    subprocess.run(["unzip", "-q", "grace.zip", "-d", str(tmp_path)], check=True)
    folder = tmp_path / "lab"

    shown = subprocess.run([folder / "bp", "--help"], capture_output=True, check=True, text=True)
    command = ("/usr/bin/ssh", "-G", "-F", str(folder / "bp.config"), *SSH_OPTIONS.split(), f"hub.{HOME}.lab.internal")
    settings = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()

    assert "list the newest runs" in shown.stdout
    assert Path("again.zip").read_bytes() == Path("grace.zip").read_bytes()
    assert hub.commands[0] == (f"hub.{HOME}", "sudo", "cat", "/srv/hub/keys/tls.crt")
    facts = json.loads((folder / "bp.json").read_text())
    assert facts["certificate"] == hub.answer
    assert (facts["person"], facts["host"]) == ("grace", "hub.lab.internal")
    assert "titan-03.cellar" in facts["document"]["machines"]
    assert {"user grace", f"hostname {facts['address']}", "stricthostkeychecking true"} <= {*settings}
    assert f"hub.{HOME}.lab.internal," in (folder / "known_hosts").read_text()
    assert "~/.ssh/lab/bp doctor" in (folder / "README.txt").read_text()
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert (modes["bp"], modes["examples"]) == (0o700, 0o700)
    example = "examples/ddp/train.py"
    assert (folder / example).read_text() == (Path(__file__).parents[2] / example).read_text()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (MachineError("no response on the SSH port", fix="connect the VPN"), "no response on the SSH port"),
        ("cat: no such file", "has no certificate in /srv/hub/keys/tls.crt"),
        (None, "its host key is not recorded"),
    ],
)
def test_an_archive_without_bp_says_why(
    answer: str | BedplateError | None,
    message: str,
    fleet: Path,
    hub: HubMachine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Status 6 and the command that continues, if the hub's certificate was not read; all else is in the archive."""
    if answer is not None:
        record_host_keys(lock_path(fleet), "lab", f"hub.{HOME}", (KEY,), replace_known=False)
    hub.answer = answer or ""

    assert run(["person", "invite", "grace"]) == 6

    errors = capsys.readouterr().err
    assert "not done: the archive lacks bp" in errors
    assert message in errors
    assert "then run `bedplate person invite grace` again" in errors
    assert {name.partition("/")[2] for name in _files(Path("grace.zip"))} == {
        *("README.txt", "config", "known_hosts", "lab.ovpn"),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [("grce", "write grace; for a new person add a line"), ("bob", '`  bob: {keys: ["ssh-ed25519 AAAA..."]}`')],
)
def test_an_unknown_person_is_refused(name: str, message: str, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the nearest name and the line to add."""
    assert run(["person", "invite", name]) == 2

    assert message in capsys.readouterr().err
    assert not Path(f"{name}.zip").exists()


def test_a_new_person_is_admitted_by_one_command(fleet: Path, gateways: Path, applies: FakeApply) -> None:
    """The id is recorded, gateways admit the laptop, and the role `people` is applied to all machines."""
    fleet.write_text(fleet.read_text() + f'  alan: {{keys: ["{KEY}"]}}\n')

    assert run(["person", "invite", "alan", "--laptop", "desk", "--apply"]) == 0

    assert "alan" in read_lock(lock_path(fleet), "lab").people
    assert all((gateways / host / "udp.laptops/alan.desk").exists() for host in HOSTS.values())
    assert sorted(applies.machines) == sorted(MACHINES)
    assert applies.requests[0].only == frozenset({"people"})


def test_machines_that_do_not_answer_are_left(
    fleet: Path, gateways: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, of `invite` and of `remove`, with the machine and the command that continues."""
    applies.silent = {"nas.cellar"}
    assert run(["person", "invite", "grace", "--apply"]) == 6
    invited = capsys.readouterr().err
    _delete(fleet, "grace")
    assert run(["person", "remove", "grace"]) == 6

    removed = capsys.readouterr().err
    for word, errors in (("invite grace --apply", invited), ("remove grace", removed)):
        assert "not done: accounts on nas.cellar" in errors
        assert f"then run `bedplate person {word}` again" in errors


def test_a_person_is_removed_after_the_edit(
    fleet: Path, gateways: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """All their laptops are revoked and their accounts removed; what bedplate does not remove is listed. Twice: 0."""
    for words in (["grace"], ["grace", "--laptop", "phone"], ["ada"]):
        run(["person", "invite", *words])
    run(["vpn", "sync"])
    _delete(fleet, "grace")
    uid = read_lock(lock_path(fleet), "lab").people["grace"]
    capsys.readouterr()

    assert [run(["person", "remove", "grace"]) for _ in range(2)] == [0, 0]

    output = capsys.readouterr().out
    assert f"files of grace (user id {uid})" in output
    assert "bundle push" not in output  # the fleet has no groups
    assert {file.name for host in HOSTS.values() for file in (gateways / host / "udp.laptops").iterdir()} == {
        "ada.laptop"
    }
    assert {entry.reason for entry in keys_of("lab", Terminal(fleet)).certificates.revocations()} == {Reason.LEFT}
    assert [request.only for request in applies.requests] == [frozenset({"people"})] * 2
    assert all("grace" in target.node.accounts.departed for target in applies.requests[0].targets)


def test_a_person_is_removed_before_the_edit(
    fleet: Path, gateways: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The VPN access ends at once. Status 6: the lines to delete are named, because an apply would keep accounts."""
    run(["person", "invite", "grace"])
    line = next(number for number, text in enumerate(fleet.read_text().splitlines(), 1) if text.startswith("  grace:"))

    assert run(["person", "remove", "grace"]) == 6

    assert f"delete line {line} of fleet.yaml" in capsys.readouterr().err
    assert not applies.requests
    assert "grace.laptop" not in listed(fleet, capsys)


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        ("  grace:\n    keys:\n      - KEY\n\n# the end\n", "lines {0} to {2}"),
        ("  grace: {\n    keys: [KEY]\n  }\n  zoe: {keys: [KEY]}\n", "lines {0} to {2}"),
    ],
    ids=["block", "flow"],
)
def test_the_lines_of_a_person_are_named(
    entry: str, lines: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of an entry of several lines; never those of the next key, and no comment after it."""
    _delete(fleet, "grace")
    first = fleet.read_text().count("\n") + 1
    fleet.write_text(fleet.read_text() + entry.replace("KEY", f'"{KEY}"'))

    assert run(["person", "remove", "grace"]) == 6

    assert f"delete {lines.format(first, first + 1, first + 2)} of fleet.yaml" in capsys.readouterr().err


def test_a_person_who_never_had_access_is_refused(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the nearest name."""
    assert run(["person", "remove", "grce"]) == 2

    assert "write grace" in capsys.readouterr().err


def test_machines_of_groups_are_left_if_aws_does_not_answer(
    begun: Path, applies: FakeApply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Permanent machines are done; status 6 names the groups. Their stored accounts need a push, as the output says."""
    lose_credentials(monkeypatch)
    monkeypatch.chdir(begun.parent)
    run(["plan", "--write"])
    _delete(begun, "grace")
    record_host_keys(lock_path(begun), "lab", "nas.cellar", (KEY,), replace_known=False)

    assert run(["person", "remove", "grace"]) == 6

    output = capsys.readouterr()
    assert "not done: running machines of workbench-gpu, workbench-cpu: " in output.err
    assert "`bedplate bundle push`" in output.out
    assert applies.machines == ["nas.cellar"]
