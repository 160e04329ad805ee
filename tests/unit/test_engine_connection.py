"""Commands over a line to an agent: the real agent, run by this machine's own shell in folders of a test."""

import shutil
import subprocess
import sys
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest

from bedplate.nodes.apply import Kind, Trouble
from roles.engine.agent import READY, receive, send
from roles.engine.connection import Connection, agent_program
from tests.testlab.fakes.agent import connect, agent_options


@pytest.fixture
def line(tmp_path: Path) -> Connection:
    """Give a line that has the lock."""
    return connect(tmp_path)


def test_a_command_tells_its_status_and_both_of_its_voices(line: Connection) -> None:
    """What a command says is kept apart from what it complains of."""
    result = line.run("echo fine; echo odd >&2; exit 3")

    assert (result.status, result.out, result.err) == (3, "fine\n", "odd\n")
    line.close()


def test_a_command_reads_what_it_is_given(line: Connection) -> None:
    """A secret goes by the input, where no list of processes shows it."""
    assert line.run("cat", given=b"a secret").out == "a secret"
    line.close()


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(line: Connection, tmp_path: Path) -> None:
    """Nothing of it goes on behind the next one's back."""
    result = line.run(f"(sleep 5; touch {tmp_path}/late) & wait", timeout=0.3)

    assert result.status == 124
    line.close()
    assert not (tmp_path / "late").exists()


def test_what_a_command_says_takes_no_room_of_the_nodes(line: Connection, tmp_path: Path) -> None:
    """A node whose disks are full can still say so."""
    shutil.rmtree(tmp_path / "run")

    result = line.run("echo here; echo there >/dev/stderr")

    assert (result.out, result.err) == ("here\n", "there\n")
    line.close()


def test_a_service_that_stays_holds_nobody_up(line: Connection) -> None:
    """Whatever keeps a command's output open, the command has ended when its shell has."""
    start = time.monotonic()

    line.run("sleep 20 & echo started")

    assert time.monotonic() - start < 10
    line.close()


def test_a_command_goes_on_to_its_end_when_the_line_is_cut(tmp_path: Path) -> None:
    """A package that is half installed would be worse than one that is installed unseen."""
    line = connect(tmp_path)
    asking = threading.Thread(target=_until_cut, args=(line, f"sleep 1; touch {tmp_path}/done"))
    asking.start()
    time.sleep(0.3)

    line._process.stdin.close()  # type: ignore[union-attr]  # noqa: SLF001  what a cut looks like from here
    asking.join()

    _until((tmp_path / "done").exists)
    line.close()


def _until_cut(line: Connection, command: str) -> None:
    with pytest.raises(Trouble, match="cut"):
        raise_if_answered(line, command)


def raise_if_answered(line: Connection, command: str) -> None:
    """Run a command, and one more: the first may still be answered."""
    line.run(command)
    line.run("true")


def _until(happens: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_role_that_waits_to_be_confirmed_is_told_with_the_next_answer(line: Connection, tmp_path: Path) -> None:
    """Whoever applies learns of it without asking."""
    before = line.run("true").unconfirmed
    (tmp_path / "run/unconfirmed").mkdir()
    (tmp_path / "run/unconfirmed/trial").touch()

    assert not before
    assert line.run("true").unconfirmed
    line.close()


def test_a_command_that_is_ended_for_its_time_is_told_from_one_that_says_so_itself(line: Connection) -> None:
    """`timeout` has the same status, and is an answer."""
    assert [line.run("exit 124", timeout=60).late, line.run("sleep 60", timeout=0.1).late] == [False, True]
    line.close()


def test_a_far_end_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server that is gone can stop an agent for good; whoever has said how long waits no longer."""
    monkeypatch.setattr("roles.engine.connection._GRACE", 0.5)
    line = Connection("here", ("sh", "-c", 'eval "exec $1"', "sh"), agent_options(tmp_path))

    with pytest.raises(Trouble, match="does not answer") as trouble:
        line.run("kill -STOP $PPID; sleep 600", timeout=0.5)

    assert trouble.value.kind is Kind.UNREACHED
    line.close()


def test_a_file_is_written_whole_and_keeps_owner_and_mode(line: Connection, tmp_path: Path) -> None:
    """A file that only its owner may read stays so."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)

    refused = line.put(str(path), b"new")

    assert refused == ""
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    line.close()


def test_folders_may_be_read_by_all_whatever_the_login_s_umask(tmp_path: Path) -> None:
    """People read what an apply puts on a node, also when an administrator's own files are closed to them."""
    line = Connection("here", ("sh", "-c", 'umask 077; exec sh -c "$1"', "sh"), agent_options(tmp_path))

    line.run(f"mkdir -p {tmp_path}/above/below")

    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "above", tmp_path / "above/below")} == {0o755}
    line.close()


def test_a_new_file_may_be_read_by_all_and_a_link_is_followed(line: Connection, tmp_path: Path) -> None:
    """As `cp` has it."""
    (tmp_path / "link").symlink_to(tmp_path / "file")

    line.put(str(tmp_path / "link"), b"text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    line.close()


def test_what_cannot_be_written_is_told_and_leaves_nothing(line: Connection, tmp_path: Path) -> None:
    """The node's own words come back; no temporary file stays."""
    (tmp_path / "folder").mkdir()

    refused = line.put(str(tmp_path / "folder"), b"text")

    assert "folder" in refused
    assert not list(tmp_path.glob(".bedplate-*"))
    line.close()


def test_a_file_is_read_and_a_missing_one_is_an_error(line: Connection, tmp_path: Path) -> None:
    """Bytes come as they are."""
    (tmp_path / "file").write_bytes(b"\x00\xff")

    assert line.get(str(tmp_path / "file")) == b"\x00\xff"
    with pytest.raises(OSError, match="No such file"):
        line.get(str(tmp_path / "none"))
    line.close()


def test_a_greeting_of_the_shell_is_no_part_of_the_talk(tmp_path: Path) -> None:
    """Some shells say something to whoever logs in."""
    greeting = tmp_path / "greeting"
    greeting.write_text('#!/bin/sh\necho "Welcome to the cellar"\nexec sh -c "$1"\n')
    greeting.chmod(0o755)

    line = Connection("here", (str(greeting),), agent_options(tmp_path))

    assert line.run("echo in").out == "in\n"
    line.close()


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Permission denied (publickey).", Kind.UNREACHED, "does not let this account in"),
        ("ssh: connect to host x port 22: Connection timed out", Kind.UNREACHED, "does not answer"),
        ("ssh: Could not resolve hostname x: Name or service not known", Kind.UNREACHED, "does not resolve"),
        ("sudo: a password is required", Kind.UNREACHED, "asks for a password"),
        ("ada is not in the sudoers file.", Kind.UNREACHED, "may not become root"),
        ("sh: 1: exec: sudo: not found", Kind.UNREACHED, "no sudo"),
        ("sh: 1: exec: python3: not found", Kind.UNREACHED, "no Python"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            Kind.REFUSED,
            "not the",
        ),
        ("No ED25519 host key is known for x\nHost key verification failed.", Kind.REFUSED, "not known"),
        ("kex_exchange_identification: weird", Kind.UNREACHED, "weird"),
    ],
    ids=["key", "silent", "name", "password", "sudoers", "Configure sudo", "python", "changed", "unknown", "other"],
)
def test_a_login_that_fails_is_told_in_words(said: str, kind: Kind, told: str, tmp_path: Path) -> None:
    """An operator reads what is the matter and what to do, whatever ssh says."""
    text = tmp_path / "said"
    text.write_text(said)

    with pytest.raises(Trouble, match=told) as trouble:
        Connection("titan-01.cellar", ("sh", "-c", f"cat {text} >&2; exit 255"), agent_options(tmp_path))

    assert trouble.value.kind is kind
    assert trouble.value.fix


def test_sudo_is_understood_whatever_language_the_operator_speaks(tmp_path: Path) -> None:
    """A terminal brings its language along, and what sudo refuses is known by its words."""
    programs = {
        "id": "echo 1000",
        "Configure sudo": 'test "$LANGUAGE$LC_ALL" = C.UTF-8 && echo "a password is required" >&2; exit 1',
        "login": f'export LANGUAGE=de LC_ALL=de_DE.UTF-8 PATH={tmp_path}:$PATH; exec sh -c "$1"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    with pytest.raises(Trouble, match="sudo asks for a password"):
        Connection("titan-01.cellar", (str(tmp_path / "login"),), agent_options(tmp_path))


def test_a_login_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as a machine that does not answer, and not as one of which nobody says why."""
    monkeypatch.setattr("roles.engine.connection._LOGIN_SECONDS", 0.5)

    with pytest.raises(Trouble, match="does not answer"):
        Connection("here", ("sh", "-c", "exec sleep 600", "sh"), agent_options(tmp_path))


def test_a_node_needs_nothing_but_its_python(tmp_path: Path) -> None:
    """The whole agent goes over the line: it runs where nothing of this project, and of nobody else's, is installed."""
    said = BytesIO()
    places = {"folder": str(tmp_path / "run"), "memory": str(tmp_path / "memory")}
    send(said, {"lock": "alone", "who": "ada", "patience": 0, **places})
    send(said, {"do": "put", "path": str(tmp_path / "file"), "note": "A file"}, b"text")

    lonely = (sys.executable, "-I", "-S", "-c", agent_program().decode())
    done = subprocess.run(lonely, input=said.getvalue(), capture_output=True, check=True, cwd=tmp_path)

    answers = BytesIO(done.stdout.removeprefix(READY))
    assert [receive(answers)[0] for _ in range(2)] == [{"held": "", "unfinished": []}, {}]
    assert (tmp_path / "file").read_bytes() == b"text"
    assert (tmp_path / "memory/unfinished").read_text() == "A file\n"


def test_of_two_applies_one_wins_and_the_other_is_told_who(line: Connection, tmp_path: Path) -> None:
    """A node is worked on by one at a time."""
    with pytest.raises(Trouble, match="ada on her desk") as refused:
        connect(tmp_path)

    assert refused.value.kind is Kind.HELD
    line.close()


def test_a_node_without_room_for_its_lock_is_told(tmp_path: Path) -> None:
    """What the system says becomes words: a folder that cannot be made is no lost connection."""
    (tmp_path / "run").write_text("in the way")

    with pytest.raises(Trouble, match=r"taking its lock: .*File exists") as refused:
        connect(tmp_path)

    assert refused.value.kind is Kind.FAILED


def test_whoever_only_looks_leaves_nothing(tmp_path: Path) -> None:
    """The folder of what outlives a boot is made when there is something to remember."""
    looking = connect(tmp_path, "shared")
    looking.close()
    before = (tmp_path / "memory").exists()
    working = connect(tmp_path)
    working.run("true", note="Settings")

    assert not before
    assert (tmp_path / "memory/unfinished").read_text() == "Settings\n"
    working.close()


def test_two_looks_go_together_and_none_beside_an_apply(tmp_path: Path) -> None:
    """A check changes nothing, so that others may check too."""
    first, second = (connect(tmp_path, "shared") for _ in range(2))

    with pytest.raises(Trouble, match="worked on"):
        connect(tmp_path)

    first.close()
    second.close()


def test_the_lock_is_roots_alone(line: Connection, tmp_path: Path) -> None:
    """Whoever may read it could hold it, and no apply would come through; one that others could read is closed."""
    lock = tmp_path / "run/apply.lock"
    first = lock.stat().st_mode & 0o777
    line.close()
    lock.chmod(0o644)

    connect(tmp_path).close()

    assert (first, lock.stat().st_mode & 0o777) == (0o600, 0o600)


def test_a_second_connection_needs_no_lock(line: Connection, tmp_path: Path) -> None:
    """Whoever confirms a change comes in while the apply still holds the node."""
    second = connect(tmp_path, "none")

    assert second.run("echo in").out == "in\n"
    second.close()
    line.close()


def test_a_silent_holder_is_waited_for(line: Connection, tmp_path: Path) -> None:
    """One whose connection was cut finishes its command and leaves: who comes next need not be sent away."""
    lock = tmp_path / "run/apply.lock"
    _age(lock, 60)
    threading.Timer(0.7, line.close).start()

    after = connect(tmp_path, patience=20)

    assert after.run("true").status == 0
    after.close()


def test_what_was_begun_is_remembered_until_all_is_done(tmp_path: Path) -> None:
    """An apply that was cut off leaves the names of what it changed, for what answers them has not run."""
    cut = connect(tmp_path)
    cut.run("true", note="Write the sshd configuration")
    cut.put(str(tmp_path / "file"), b"", note="A file")
    cut.run("true", note="A file")
    cut.close()

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
