"""`bedplate ssh` and its ProxyCommand, with a real sshd on loopback and a fake of AWS's plugin."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
from botocore.stub import ANY

from bedplate.cli import run
from bedplate.lock import read_lock, record_host_keys
from bedplate.nodes.host_keys import connect, relay
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, serving
from tests.testlab.fakes.instances import HOME, INSTANCE, console, group_members, instances, name_zone
from tests.testlab.machines.sshd import Server, install_plugin, running_server

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
NAME = "control-1.us-west-2"

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run sshd as the user of the tests, on a free port of loopback."""
    with running_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all machines silent at their addresses, as without the VPN."""
    monkeypatch.setattr("bedplate.operate.login.connect", lambda _host: None)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the fake plugin."""
    install_plugin(tmp_path / "bin", monkeypatch)


def _permanent(account: StubbedSession) -> None:
    instances(account, ANY, {"InstanceId": INSTANCE, "State": {"Name": "running"}})


def _session(account: StubbedSession, server: Server) -> None:
    """Prepare a session."""
    request = {"Target": INSTANCE, "DocumentName": "AWS-StartSSHSession", "Parameters": {"portNumber": ["22"]}}
    account.answers("ssm", HOME, "start_session", server.session, **request)


@pytest.mark.usefixtures("far", "plugin")
def test_a_machine_without_a_network_path_is_reached_through_session_manager(
    account: StubbedSession, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first login records the verified key and says so. The exit status is that of the command."""
    _permanent(account)
    console(account, server.key)
    _session(account, server)

    assert run(["ssh", NAME, *server.login, "--", "echo $((6 * 7)); exit 7"]) == 7

    output = capfd.readouterr()
    assert output.out == "42\n"
    assert f"recorded in fleet.lock: {NAME} has host key SHA256:" in output.err
    assert dict(read_lock(Path("fleet.lock"), "lab").host_keys) == {NAME: (server.key,)}


@pytest.mark.usefixtures("far", "plugin")
def test_another_host_key_is_refused(
    account: StubbedSession, server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever answers through Session Manager, only the recorded key of the instance is accepted."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (KEY,), INSTANCE, replace_known=False)
    _permanent(account)
    _session(account, server)

    assert run(["ssh", NAME, *server.login, "--", f"touch {tmp_path}/ran"]) == 255

    assert "Host key verification failed" in capfd.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("far")
def test_a_missing_plugin_is_reported_before_aws_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 4, with the command that installs it."""
    monkeypatch.setenv("PATH", "/nonexistent")

    assert run(["ssh", NAME]) == 4

    assert "session-manager-plugin is not installed" in (output := capsys.readouterr().err)
    assert "fix  run `" in output


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("TargetNotConnected", 6, f"{NAME} ({INSTANCE}) is not connected to Systems Manager"),
        ("AccessDeniedException", 4, "permission denied: ssm:StartSession"),
        ("ExpiredTokenException", 4, "the AWS credentials have expired"),
    ],
)
@pytest.mark.usefixtures("far", "plugin")
def test_a_session_that_does_not_start_is_reported(
    code: str, status: int, says: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence, with the next step; ssh does not start."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (KEY,), INSTANCE, replace_known=False)
    _permanent(account)
    account.refuses("ssm", HOME, "start_session", code)

    assert run(["ssh", NAME]) == status

    assert says in (output := capsys.readouterr().err)
    assert "fix  " in output


@pytest.mark.usefixtures("far", "plugin")
def test_a_group_selects_its_only_machine(
    account: StubbedSession, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its host key is recorded under its name."""
    name_zone(account, ("workbench-cpu-2.us-west-2", INSTANCE))
    group_members(account, INSTANCE)
    console(account, server.key)
    _session(account, server)

    assert run(["ssh", "workbench-cpu", *server.login, "--", "echo here"]) == 0

    assert capfd.readouterr().out == "here\n"
    assert [*read_lock(Path("fleet.lock"), "lab").host_keys] == ["workbench-cpu-2.us-west-2"]


@pytest.mark.parametrize("name", [INSTANCE, f"workbench-cpu-{INSTANCE[-8:]}.us-west-2"])
@pytest.mark.usefixtures("far", "plugin")
def test_an_instance_of_a_group_is_reached_by_its_id(
    name: str, account: StubbedSession, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also by the name that `node list --live` shows. Its key is verified at each login, and not recorded."""
    name_zone(account)
    for region in ("us-east-1", "eu-north-1"):
        nothing: dict[str, object] = {"AutoScalingGroups": []}
        account.answers("autoscaling", region, "describe_auto_scaling_groups", nothing, AutoScalingGroupNames=ANY)
    group_members(account, INSTANCE, group_names=ANY)
    console(account, server.key)
    _session(account, server)

    assert run(["ssh", name, *server.login, "--", "echo here"]) == 0

    assert capfd.readouterr().out == "here\n"
    assert not Path("fleet.lock").exists()


@pytest.mark.parametrize(
    ("members", "status", "says"),
    [
        (
            (INSTANCE, "i-0000000000000000c"),
            2,
            "name one of workbench-cpu-0000000c.us-west-2, workbench-cpu-2.us-west-2",
        ),
        ((), 6, "no running machine: workbench-cpu"),
    ],
    ids=["two", "none"],
)
def test_a_group_with_another_number_of_machines_is_refused(
    members: tuple[str, ...], status: int, says: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists the machines."""
    name_zone(account, ("workbench-cpu-2.us-west-2", INSTANCE))
    group_members(account, *members)

    assert run(["ssh", "workbench-cpu"]) == status

    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("name", "status"), [("titan-01.cellar", 6), ("titan-1.cellar", 2)])
@pytest.mark.usefixtures("far")
def test_a_machine_of_a_site_needs_a_network_path(name: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Session Manager does not reach it. An unknown name gets the nearest one."""
    assert run(["ssh", name]) == status

    assert "titan-01.cellar" in capsys.readouterr().err


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let all machines answer, and yield the file in which a fake ssh writes its settings and arguments."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (KEY,), replace_known=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(
            "bedplate.operate.login.connect", lambda _: socket.create_connection(listener.getsockname())
        )
        program = tmp_path / "bin/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n{{ cat "$2" "${{2%/*}}/known_hosts"; echo "$3" "$4"; }} >{tmp_path}/config\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

        yield tmp_path / "config"


def test_a_stranger_names_a_user_once(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 names the administrators. A user of the fleet file is remembered in its folder, another one is not."""
    monkeypatch.setenv("LOGNAME", "root")

    assert run(["ssh", NAME]) == 2
    assert "administrators: ada" in capsys.readouterr().err
    assert run(["ssh", NAME, "--user", "ubuntu"]) == 0
    assert run(["ssh", NAME]) == 2
    assert run(["ssh", NAME, "--user", "grace"]) == 0
    assert run(["ssh", NAME]) == 0

    assert "  User grace\n" in answers.read_text()


def test_a_remembered_user_that_cannot_be_read_is_unknown(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator names the user again, which replaces the file."""
    monkeypatch.setenv("LOGNAME", "root")
    Path(".user").write_bytes(b"gr\xe9ce\n")

    assert run(["ssh", NAME]) == 2
    assert "administrators: ada" in capsys.readouterr().err
    assert run(["ssh", NAME, "--user", "grace"]) == 0

    assert Path(".user").read_text() == "grace\n"


def test_a_machine_that_answers_is_reached_directly(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AWS, and with the recorded host key."""
    monkeypatch.setenv("LOGNAME", "ada")

    assert run(["ssh", NAME, "--", "uptime"]) == 0

    config = answers.read_text()
    assert "ProxyCommand" not in config
    assert KEY in config
    assert config.endswith(f"{NAME} uptime\n")


@pytest.mark.parametrize(
    ("greeting", "answers"), [(b"SSH-2.0-OpenSSH_9.6\r\n", True), (b"HTTP/1.1 400 \r\n", False), (b"", False)]
)
def test_only_an_ssh_server_answers(greeting: bytes, monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    """A proxy that accepts any connection is no machine: it says nothing, or speaks another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("bedplate.nodes.host_keys.PORT", listener.getsockname()[1])
        monkeypatch.setattr("bedplate.nodes.host_keys._SECONDS", 0.2)

        def greet() -> None:
            peer, _ = listener.accept()
            peer.sendall(greeting)
            time.sleep(0.4)
            peer.close()

        thread = Thread(target=greet)
        thread.start()
        connection = connect("127.0.0.1")
        thread.join()

    assert (connection is not None) is answers
    if connection:
        assert connection.recv(100) == greeting
        connection.close()


def test_bytes_are_carried_in_both_directions_until_both_ends_close() -> None:
    """The end of one direction does not cut the other, as scp needs."""
    data = os.urandom(3_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    (reader, feed), (sink, writer) = os.pipe(), os.pipe()
    received = bytearray()

    def echo() -> None:
        with far:
            while part := far.recv(65536):
                received.extend(part)
            far.sendall(data[::-1])

    def write() -> None:
        with os.fdopen(feed, "wb") as stream:
            stream.write(data)

    def carry() -> None:
        relay(near, reader, writer)
        os.close(writer)

    threads = [Thread(target=work, daemon=True) for work in (echo, write, carry)]
    for thread in threads:
        thread.start()
    with os.fdopen(sink, "rb") as stream:
        answer = stream.read()
    for thread in threads:
        thread.join()

    assert (bytes(received), answer) == (data, data[::-1])


_STS = f"<R><GetCallerIdentityResult><Account>{ACCOUNT}</Account></GetCallerIdentityResult></R>"
_EC2 = (
    "<R><reservationSet><item><instancesSet><item>"
    f"<instanceId>{INSTANCE}</instanceId><instanceState><name>running</name></instanceState>"
    "</item></instancesSet></item></reservationSet></R>"
)


@pytest.mark.usefixtures("plugin")
def test_scp_works_with_the_written_settings(server: Server, tmp_path: Path) -> None:
    """The ProxyCommand finds the instance at connection time, and ssh checks its recorded key."""

    class Aws(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_session = self.headers.get("X-Amz-Target") == "AmazonSSM.StartSession"
            text = json.dumps(server.session) if is_session else _STS if "GetCallerIdentity" in body else _EC2
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    record_host_keys(Path("fleet.lock"), "lab", NAME, (server.key,), replace_known=False)
    (tmp_path / "data").write_bytes(content := os.urandom(1_000_000))
    assert run(["node", "ssh-config", "--write", "config", *server.login]) == 0
    with serving(Aws) as url:
        keys = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        command = ["scp", "-q", "-F", "config", str(tmp_path / "data"), f"{NAME}:{tmp_path}/copy"]
        subprocess.run(command, env={**os.environ, **keys}, check=True)

    assert (tmp_path / "copy").read_bytes() == content


@pytest.mark.parametrize("is_installed", [True, False], ids=["plugin", "no plugin"])
def test_an_apply_uses_the_same_path(
    is_installed: bool,  # noqa: FBT001
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A machine that does not answer gets the ProxyCommand; without the plugin a note says what to install."""
    if is_installed:
        request.getfixturevalue("plugin")
    record_host_keys(Path("fleet.lock"), "lab", NAME, (KEY,), replace_known=False)
    monkeypatch.setattr("bedplate.operate.login.answering", lambda _hosts: frozenset())
    settings: list[str] = []

    def read_settings(_operator: object, request: object, _missing: object) -> object:
        argv = request.targets[0].argv  # type: ignore[attr-defined]
        settings.append(Path(argv[argv.index("-F") + 1]).read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr("bedplate.operate.apply.apply_order", read_settings)

    assert run(["node", "apply", NAME, "--check"]) == 130

    assert (f"bedplate ssh --proxy {NAME} --fleet {Path.cwd()}/fleet.yaml" in settings[0]) is is_installed
    assert ("session-manager-plugin is not installed" in capsys.readouterr().err) is not is_installed


@pytest.mark.parametrize(("command", "program"), [("logs", "journalctl"), ("burn-in", "bedplate-gate --burn-in")])
def test_a_command_runs_a_program_of_the_machine(command: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, by sudo without a password; its exit status is that of the command."""
    ran: list[str] = []

    def log_in(_operator: object, name: str, words: tuple[str, ...]) -> int:
        ran.extend((name, " ".join(words)))
        return 3

    monkeypatch.setattr("bedplate.cli.ssh.log_in", log_in)

    assert run(["node", command, NAME]) == 3
    assert ran[0] == NAME
    assert ran[1].startswith("sudo -n ")
    assert program in ran[1]
