"""The connection to an agent: commands, files, the node's lock, login errors, and the list of unfinished operations.

The agent is real, and runs on this machine in folders of a test.
"""

import shutil
import struct
import subprocess
import sys
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest

from bedplate.nodes.apply import NodeError, NodeErrorKind
from bedplate.nodes.bootstrap import OWN_RUN
from bedplate.programs.apply_agent import READY, receive, send
from roles.engine import connection as engine_connection
from roles.engine.connection import Connection, agent_program, held_error
from tests.testlab.fakes.agent import agent_options, connect


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    """Return a connection that holds the lock."""
    return connect(tmp_path)


def test_a_command_returns_status_and_both_outputs(connection: Connection) -> None:
    """Stdout and stderr are kept apart."""
    result = connection.run("echo fine; echo odd >&2; exit 3")

    assert (result.status, result.out, result.err) == (3, "fine\n", "odd\n")
    connection.close()


def test_a_command_reads_its_stdin(connection: Connection) -> None:
    """A secret goes over stdin, which no process list shows."""
    assert connection.run("cat", stdin=b"a secret").out == "a secret"
    connection.close()


def test_a_timeout_kills_all_processes_of_a_command(connection: Connection, tmp_path: Path) -> None:
    """No process of the command continues in the background."""
    result = connection.run(f"(sleep 5; touch {tmp_path}/late) & wait", timeout=0.3)

    assert result.status == 124
    connection.close()
    assert not (tmp_path / "late").exists()


def test_output_needs_no_disk_space(connection: Connection, tmp_path: Path) -> None:
    """A node with full disks can still report."""
    shutil.rmtree(tmp_path / "run")

    result = connection.run("echo here; echo there >/dev/stderr")

    assert (result.out, result.err) == ("here\n", "there\n")
    connection.close()


def test_a_background_process_does_not_block(connection: Connection) -> None:
    """A command ends with its shell, even if a process keeps its output open."""
    start = time.monotonic()

    connection.run("sleep 20 & echo started")

    assert time.monotonic() - start < 10
    connection.close()


def test_a_command_completes_after_a_lost_connection(tmp_path: Path) -> None:
    """A package installation must not be interrupted."""
    connection = connect(tmp_path)
    thread = threading.Thread(target=_until_cut, args=(connection, f"sleep 1; touch {tmp_path}/done"))
    thread.start()
    time.sleep(0.3)

    connection._process.stdin.close()  # type: ignore[union-attr]  # noqa: SLF001  as after a lost connection
    thread.join()

    _wait_until((tmp_path / "done").exists)
    connection.close()


def _until_cut(connection: Connection, command: str) -> None:
    with pytest.raises(NodeError, match="connection lost"):
        run_twice(connection, command)


def run_twice(connection: Connection, command: str) -> None:
    """Run a command and another one: the first may still get its reply."""
    connection.run(command)
    connection.run("true")


def _wait_until(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_reply_reports_an_unconfirmed_change(connection: Connection, tmp_path: Path) -> None:
    """The next reply tells that a role waits for a confirmation."""
    before = connection.run("true").unconfirmed
    (tmp_path / "run/unconfirmed").mkdir()
    (tmp_path / "run/unconfirmed/trial").touch()

    assert not before
    assert connection.run("true").unconfirmed
    connection.close()


def test_a_timeout_is_told_from_exit_code_124(connection: Connection) -> None:
    """A command may return the status of `timeout` itself."""
    assert [connection.run("exit 124", timeout=60).late, connection.run("sleep 60", timeout=0.1).late] == [False, True]
    connection.close()


def test_a_hanging_agent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed file server can block the agent; the command's timeout still applies."""
    monkeypatch.setattr(engine_connection, "_GRACE", 0.5)
    connection = Connection("here", ("sh", "-c", 'eval "exec $1"', "sh"), agent_options(tmp_path))

    with pytest.raises(NodeError, match="no answer to a query") as error:
        connection.run("kill -STOP $PPID; sleep 600", timeout=0.5)

    assert error.value.kind is NodeErrorKind.UNREACHED
    connection.close()


def test_a_written_file_keeps_its_mode(connection: Connection, tmp_path: Path) -> None:
    """A file that only its owner may read stays so."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)

    message = connection.put(str(path), b"new")

    assert message == ""
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    connection.close()


def test_the_umask_of_the_login_does_not_apply(tmp_path: Path) -> None:
    """Folders are readable for all users, also with a strict umask of the administrator."""
    connection = Connection("here", ("sh", "-c", 'umask 077; exec sh -c "$1"', "sh"), agent_options(tmp_path))

    connection.run(f"mkdir -p {tmp_path}/above/below")

    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "above", tmp_path / "above/below")} == {0o755}
    connection.close()


def test_a_symlink_is_followed(connection: Connection, tmp_path: Path) -> None:
    """A new file has mode 644, and a symlink stays."""
    (tmp_path / "link").symlink_to(tmp_path / "file")

    connection.put(str(tmp_path / "link"), b"text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    connection.close()


def test_a_failed_write_is_reported(connection: Connection, tmp_path: Path) -> None:
    """The error message comes from the node, and no temporary file stays."""
    (tmp_path / "folder").mkdir()

    message = connection.put(str(tmp_path / "folder"), b"text")

    assert "folder" in message
    assert not list(tmp_path.glob(".folder.*"))
    connection.close()


def test_a_missing_file_is_an_error(connection: Connection, tmp_path: Path) -> None:
    """An existing file is read as bytes."""
    (tmp_path / "file").write_bytes(b"\x00\xff")

    assert connection.get(str(tmp_path / "file")) == b"\x00\xff"
    with pytest.raises(OSError, match="No such file"):
        connection.get(str(tmp_path / "none"))
    connection.close()


def test_output_of_the_login_shell_is_skipped(tmp_path: Path) -> None:
    """A login shell may print a greeting before the agent starts."""
    greeting = tmp_path / "greeting"
    greeting.write_text('#!/bin/sh\necho "Welcome"\nexec sh -c "$1"\n')
    greeting.chmod(0o755)

    connection = Connection("here", (str(greeting),), agent_options(tmp_path))

    assert connection.run("echo in").out == "in\n"
    connection.close()


def test_a_failed_login_is_explained(tmp_path: Path) -> None:
    """The error has the kind and the message for the output of ssh."""
    with pytest.raises(NodeError, match="login refused for this account") as error:
        Connection("here", ("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"), agent_options(tmp_path))

    assert error.value.kind is NodeErrorKind.UNREACHED


@pytest.mark.parametrize("answer", [b"[" * 100_000, b"5", b"{}", b'{"held": "", "unfinished": 5}'])
def test_an_invalid_answer_of_an_agent_is_an_error_of_the_node(answer: bytes, tmp_path: Path) -> None:
    """The answer is no defect of bedplate, and other nodes continue."""
    file = tmp_path / "answer"
    file.write_bytes(READY + struct.pack(">II", len(answer), 0) + answer)

    with pytest.raises(NodeError):
        Connection("titan-01.cellar", ("sh", "-c", f"cat {file}; exec cat >/dev/null"), agent_options(tmp_path))


def test_sudo_runs_in_english(tmp_path: Path) -> None:
    """Sudo's errors are recognised by their text, so the operator's locale does not apply."""
    programs = {
        "id": "echo 1000",
        "sudo": 'test "$LANGUAGE$LC_ALL" = C.UTF-8 && echo "a password is required" >&2; exit 1',
        "login": f'export LANGUAGE=de LC_ALL=de_DE.UTF-8 PATH={tmp_path}:$PATH; exec sh -c "$1"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    with pytest.raises(NodeError, match="sudo asks for a password"):
        Connection("titan-01.cellar", (str(tmp_path / "login"),), agent_options(tmp_path))


def test_a_hanging_login_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging login is reported as a node that does not answer."""
    monkeypatch.setattr(engine_connection, "_LOGIN_SECONDS", 0.5)

    with pytest.raises(NodeError, match="no answer to"):
        Connection("here", ("sh", "-c", "exec sleep 600", "sh"), agent_options(tmp_path))


def test_the_agent_needs_only_the_standard_library(tmp_path: Path) -> None:
    """The agent runs without any module of this project."""
    frames = BytesIO()
    folders = {"folder": str(tmp_path / "run"), "memory": str(tmp_path / "memory")}
    send(frames, {"lock": "alone", "who": "ada", "patience": 0, **folders})
    send(frames, {"do": "put", "path": str(tmp_path / "file"), "note": "A file"}, b"text")

    program = (sys.executable, "-I", "-S", "-c", agent_program().decode())
    process = subprocess.run(program, input=frames.getvalue(), capture_output=True, check=True, cwd=tmp_path)

    replies = BytesIO(process.stdout.removeprefix(READY))
    assert [receive(replies)[0] for _ in range(2)] == [{"held": "", "unfinished": []}, {}]
    assert (tmp_path / "file").read_bytes() == b"text"
    assert (tmp_path / "memory/unfinished").read_text() == "A file\n"


def test_a_second_apply_is_refused_with_the_holder_s_name(connection: Connection, tmp_path: Path) -> None:
    """Only one apply at a time changes a node."""
    with pytest.raises(NodeError, match="locked by ada on laptop-1") as error:
        connect(tmp_path)

    assert error.value.kind is NodeErrorKind.HELD
    connection.close()


def test_a_failed_lock_is_reported(tmp_path: Path) -> None:
    """An error of the file system is reported, not taken for a lost connection."""
    (tmp_path / "run").write_text("in the way")

    with pytest.raises(NodeError, match=r"Lock the node: .*File exists") as error:
        connect(tmp_path)

    assert error.value.kind is NodeErrorKind.FAILED


def test_a_check_creates_no_files(tmp_path: Path) -> None:
    """The journal's folder is created with the first operation of an apply."""
    check = connect(tmp_path, "shared")
    check.close()
    before = (tmp_path / "memory").exists()
    apply = connect(tmp_path)
    apply.run("true", note="Settings")

    assert not before
    assert (tmp_path / "memory/unfinished").read_text() == "Settings\n"
    apply.close()


def test_checks_share_the_lock(tmp_path: Path) -> None:
    """Two checks can run together, but no apply beside them."""
    first, second = (connect(tmp_path, "shared") for _ in range(2))

    with pytest.raises(NodeError, match="locked by"):
        connect(tmp_path)

    first.close()
    second.close()


def test_only_root_can_read_the_lock(connection: Connection, tmp_path: Path) -> None:
    """A user who can read the file could hold the lock; its mode is corrected."""
    lock = tmp_path / "run/apply.lock"
    first = lock.stat().st_mode & 0o777
    connection.close()
    lock.chmod(0o644)

    connect(tmp_path).close()

    assert (first, lock.stat().st_mode & 0o777) == (0o600, 0o600)


def test_the_confirming_connection_needs_no_lock(connection: Connection, tmp_path: Path) -> None:
    """The apply still holds the lock when a change is confirmed."""
    second = connect(tmp_path, "none")

    assert second.run("echo in").out == "in\n"
    second.close()
    connection.close()


def test_a_silent_holder_is_waited_for(connection: Connection, tmp_path: Path) -> None:
    """A holder without heartbeats has lost its connection, and exits after its current command."""
    lock = tmp_path / "run/apply.lock"
    _age(lock, 60)
    threading.Timer(0.7, connection.close).start()

    after = connect(tmp_path, patience=20)

    assert after.run("true").status == 0
    after.close()


def test_unfinished_operations_are_recorded(tmp_path: Path) -> None:
    """An interrupted apply leaves the names of its operations until a later apply is done."""
    interrupted = connect(tmp_path)
    interrupted.run("true", note="Write the sshd configuration")
    interrupted.put(str(tmp_path / "file"), b"", note="A file")
    interrupted.run("true", note="A file")
    interrupted.close()

    after = connect(tmp_path, patience=5)
    unfinished = after.unfinished
    after.finish()
    after.close()
    last = connect(tmp_path, patience=5)

    assert unfinished == ("Write the sshd configuration", "A file")
    assert last.unfinished == ()
    last.close()


def _age(path: Path, seconds: float) -> None:
    subprocess.run(["touch", "-d", f"{seconds} seconds ago", str(path)], check=True)


def test_a_machine_that_configures_itself_is_named_so() -> None:
    """Its lock is no apply of another operator: the fix shows its progress."""
    own, other = held_error("box-1.us-west-2", OWN_RUN), held_error("box-1.us-west-2", "ada on desk")

    assert (own.what, other.what) == ("it is configuring itself", "locked by ada on desk")
    assert "bedplate node logs box-1.us-west-2" in own.fix
