"""Commands on a machine over SSH: their words, input and output, and the errors.

A real sshd shows what ssh says; a shell plays the machine for what the command says.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import monotonic

import pytest

from bedplate.errors import MachineError
from bedplate.nodes import remote
from bedplate.nodes.apply import NodeError, NodeErrorKind, Target
from bedplate.nodes.remote import run
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.sshd import Server, running_server
from tests.testlab.machines.workstation import make_key

# As sshd does, it gives the command to a shell in one text.
HERE = Target(lab_node("titan-01.cellar"), ("sh", "-c"))
WORDS = ("a b", "$HOME", "*", "it's", "", "; false", "a\nb")


def _shell(script: str, *, stdin: bytes = b"", timeout: float = 30) -> str:
    return run(HERE, "sh", "-c", script, stdin=stdin, timeout=timeout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a running sshd."""
    with running_server(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


def _target(server: Server, folder: Path, *, host: str = "127.0.0.1", key: str = "", user_key: str = "") -> Target:
    """Return a machine that ssh reaches at a server, with another host name, host key or user key if given."""
    known_hosts, (_, user, _, identity) = folder / "known_hosts", server.login
    known_hosts.write_text(f"titan {key or server.key}\n")
    settings = {
        "HostName": host,
        "HostKeyAlias": "titan",
        "Port": server.port,
        "User": user,
        "IdentityFile": user_key or identity,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
    }
    options = (word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
    return Target(HERE.node, ("ssh", "-F", "none", "-T", "-o", "BatchMode=yes", *options, "titan"))


def test_each_word_arrives_as_it_is(server: Server, tmp_path: Path) -> None:
    """The machine's shell expands and divides no word; input and output are whole."""
    target, data = _target(server, tmp_path), bytes(range(256)) * 4000

    assert run(target, "printf", "<%s>", *WORDS) == "".join(f"<{word}>" for word in WORDS)
    assert run(target, "sha256sum", stdin=data).split()[0] == sha256(data).hexdigest()
    assert len(run(target, "head", "-c", "1000000", "/dev/zero")) == 1_000_000


def test_a_machine_that_is_not_reached_is_told_by_its_cause(server: Server, tmp_path: Path) -> None:
    """Each message is made from what the real ssh prints, with its last line; each has a fix."""
    other = make_key(tmp_path / "other", "other")
    targets = {
        "no response on the SSH port": _target(replace(server, port=1), tmp_path),
        "its name does not resolve": _target(server, tmp_path, host="titan.invalid"),
        "login refused for this account": _target(server, tmp_path, user_key=str(tmp_path / "other")),
    }
    for what, target in targets.items():
        with pytest.raises(NodeError) as error:
            run(target, "true")
        assert (error.value.kind, bool(error.value.fix)) == (NodeErrorKind.UNREACHED, True)
        assert error.value.what.startswith(f"{what} (")
    with pytest.raises(NodeError, match="host key differs from the recorded key") as error:
        run(_target(server, tmp_path, key=other), "true")
    assert error.value.kind is NodeErrorKind.REFUSED
    with pytest.raises(NodeError, match="host key not recorded"):
        run(_target(server, tmp_path, key="#"), "true")


def test_a_lost_connection_is_not_a_failure_of_the_command(server: Server, tmp_path: Path) -> None:
    """A session that the server ends in the middle says nothing about the command, nor does one that went silent."""
    with pytest.raises(NodeError, match="the connection was lost") as error:
        run(_target(server, tmp_path), "sh", "-c", "kill -9 $PPID; sleep 5")
    assert error.value.kind is NodeErrorKind.UNREACHED

    with pytest.raises(NodeError, match="the connection was lost"):
        _shell("exit 255")


def test_a_command_reads_bytes_or_a_file(tmp_path: Path) -> None:
    """A file goes to ssh itself, so that its size does not matter."""
    file = tmp_path / "snapshot"
    file.write_bytes(b"of a file")

    assert run(HERE, "cat", stdin=b"bytes") == "bytes"
    with file.open("rb") as stream:
        assert run(HERE, "cat", stdin=stream) == "of a file"


def test_a_command_need_not_read_its_input() -> None:
    """The result of the command counts."""
    assert _shell("echo done", stdin=bytes(1 << 20)) == "done\n"


def test_output_in_another_encoding_is_returned() -> None:
    """The caller finds that it is not JSON."""
    assert _shell(r"printf 'Zutritt verboten \374berall'").startswith("Zutritt verboten ")


def test_an_output_over_the_limit_is_an_error() -> None:
    """A machine cannot fill the memory of the operator's, and a part is never taken for the whole."""
    assert len(run(HERE, "head", "-c", "1000", "/dev/zero", limit=1000)) == 1000
    with pytest.raises(NodeError, match="more than 1,000 bytes"):
        run(HERE, "head", "-c", "1001", "/dev/zero", limit=1000)
    with pytest.raises(NodeError, match="more than 1,048,576 bytes"):
        run(HERE, "head", "-c", "3000000", "/dev/zero")


def test_a_process_that_keeps_the_pipes_open_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ssh may leave a shared connection behind: the output until its own end is the whole."""
    monkeypatch.setattr(remote, "_FLUSH_SECONDS", 0.2)
    start = monotonic()

    assert _shell("sleep 3 & echo out") == "out\n"
    assert monotonic() - start < 2


def test_a_command_without_an_end_is_given_up() -> None:
    """The error names the time limit."""
    with pytest.raises(NodeError, match=r"no answer to a command within 0\.2 s") as error:
        run(HERE, "exec", "sleep", "60", timeout=0.2)

    assert error.value.kind is NodeErrorKind.UNREACHED
    assert "run the same command again" in error.value.fix


def test_a_machine_without_ssh_is_told_so() -> None:
    """The fix is on the operator's machine."""
    with pytest.raises(MachineError, match="ssh does not start: No such file"):
        run(Target(HERE.node, ("/nonexistent/ssh",)), "true")


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        ("Permission denied (publickey).", NodeErrorKind.UNREACHED, "login refused for this account"),
        (
            "ssh: connect to host x port 22: Connection timed out",
            NodeErrorKind.UNREACHED,
            "no response on the SSH port",
        ),
        (
            "ssh: Could not resolve hostname x: Name or service not known",
            NodeErrorKind.UNREACHED,
            "name does not resolve",
        ),
        ("sudo: a password is required", NodeErrorKind.UNREACHED, "asks for a password"),
        ("ada is not in the sudoers file.", NodeErrorKind.UNREACHED, "no sudo rights"),
        ("sh: 1: exec: sudo: not found", NodeErrorKind.UNREACHED, "sudo is missing"),
        ("sh: 1: exec: python3: not found", NodeErrorKind.UNREACHED, "Python is missing"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            NodeErrorKind.REFUSED,
            "host key differs",
        ),
        (
            "No ED25519 host key is known for x\nHost key verification failed.",
            NodeErrorKind.REFUSED,
            "host key not recorded",
        ),
        ("kex_exchange_identification: weird", NodeErrorKind.UNREACHED, "weird"),
    ],
    ids=["key", "silent", "name", "password", "sudoers", "sudo", "python", "changed", "unknown", "other"],
)
def test_a_failed_login_is_explained(output: str, kind: NodeErrorKind, message: str) -> None:
    """Each known output of ssh and sudo has a message and a fix."""
    with pytest.raises(NodeError, match=message) as error:
        _shell("cat >&2; exit 255", stdin=output.encode())

    assert error.value.kind is kind
    assert error.value.fix


@pytest.mark.parametrize(
    ("status", "output", "kind", "message"),
    [
        (1, "sudo: a password is required", NodeErrorKind.UNREACHED, "sudo asks for a password"),
        (1, "sudo: bedplate-member: command not found", NodeErrorKind.FAILED, "it lacks the role control"),
        (1, "sudo: bedplate-vpn: command not found", NodeErrorKind.FAILED, "it lacks the role vpnagent"),
        (1, "unknown command: finish", NodeErrorKind.FAILED, "it has an older role control"),
        (
            2,
            "bedplate-vpn: error: argument command: invalid choice: 'x'",
            NodeErrorKind.FAILED,
            "it has an older role vpnagent",
        ),
        (5, "another command drains a node", NodeErrorKind.HELD, "another command drains a node"),
        (1, "Connection refused", NodeErrorKind.FAILED, "Connection refused"),
        (1, "", NodeErrorKind.FAILED, "failed with no error output"),
        (1, "\x1b]0;owned\x07", NodeErrorKind.FAILED, "?]0;owned?"),
    ],
    ids=[
        "sudo",
        "no-member",
        "no-agent",
        "older-member",
        "older-gateway",
        "held",
        "own-connection",
        "silent",
        "control",
    ],
)
def test_a_failed_command_is_explained(status: int, output: str, kind: NodeErrorKind, message: str) -> None:
    """The output of the command itself is never taken for that of ssh; exit status 5 means that another one works."""
    with pytest.raises(NodeError) as error:
        _shell(f"cat >&2; exit {status}", stdin=output.encode())

    assert (error.value.kind, error.value.what) == (kind, message)
    assert error.value.fix


def test_the_fix_of_another_failure_is_that_of_the_caller() -> None:
    """A caller knows where more is to be seen; without one it is the journal of the machine."""
    with pytest.raises(NodeError) as error:
        _shell("exit 1")
    assert error.value.fix == "`bedplate node logs titan-01.cellar` shows more; then run the command again"

    with pytest.raises(NodeError) as error:
        run(HERE, "false", fix="try `bedplate ssh {node}`")
    assert error.value.fix == "try `bedplate ssh titan-01.cellar`"


def test_the_name_of_a_machine_without_a_recorded_key_may_be_unknown_to_ssh() -> None:
    """The fix names the command that records the key, and the one that writes the names of the fleet for ssh."""
    with pytest.raises(NodeError) as error:
        _shell("echo ssh: Could not resolve hostname x: Name or service not known >&2; exit 255")

    assert "`bedplate node trust titan-01.cellar`" in error.value.fix
    assert "`bedplate node ssh-config --write FILE`" in error.value.fix
