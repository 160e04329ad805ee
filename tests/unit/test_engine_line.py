"""Commands over a line to an agent: the real agent, run by this machine's own shell in folders of a test."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from bedplate.nodes.event import Kind, Trouble
from roles.engine.line import Line
from tests.support.engine_line import line_here, opening


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Give a line that has the lock."""
    return line_here(tmp_path)


def test_a_command_tells_its_status_and_both_of_its_voices(line: Line) -> None:
    """What a command says is kept apart from what it complains of."""
    result = line.run("echo fine; echo odd >&2; exit 3")

    assert (result.status, result.out, result.err) == (3, "fine\n", "odd\n")
    line.close()


def test_a_command_reads_what_it_is_given(line: Line) -> None:
    """A secret goes by the input, where no list of processes shows it."""
    assert line.run("cat", given=b"a secret").out == "a secret"
    line.close()


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(line: Line, tmp_path: Path) -> None:
    """Nothing of it goes on behind the next one's back."""
    result = line.run(f"(sleep 5; touch {tmp_path}/late) & wait", timeout=0.3)

    assert result.status == 124
    line.close()
    assert not (tmp_path / "late").exists()


def test_what_a_command_says_takes_no_room_of_the_nodes(line: Line, tmp_path: Path) -> None:
    """A node whose disks are full can still say so."""
    shutil.rmtree(tmp_path / "run")

    result = line.run("echo here; echo there >/dev/stderr")

    assert (result.out, result.err) == ("here\n", "there\n")
    line.close()


def test_a_service_that_stays_holds_nobody_up(line: Line) -> None:
    """Whatever keeps a command's output open, the command has ended when its shell has."""
    start = time.monotonic()

    line.run("sleep 20 & echo started")

    assert time.monotonic() - start < 10
    line.close()


def test_a_command_goes_on_to_its_end_when_the_line_is_cut(tmp_path: Path) -> None:
    """A package that is half installed would be worse than one that is installed unseen."""
    line = line_here(tmp_path)
    asking = threading.Thread(target=_until_cut, args=(line, f"sleep 1; touch {tmp_path}/done"))
    asking.start()
    time.sleep(0.3)

    line._process.stdin.close()  # type: ignore[union-attr]  # noqa: SLF001  what a cut looks like from here
    asking.join()

    _until((tmp_path / "done").exists)
    line.close()


def _until_cut(line: Line, command: str) -> None:
    with pytest.raises(Trouble, match="cut"):
        raise_if_answered(line, command)


def raise_if_answered(line: Line, command: str) -> None:
    """Run a command, and one more: the first may still be answered."""
    line.run(command)
    line.run("true")


def _until(happens: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_role_that_waits_to_be_confirmed_is_told_with_the_next_answer(line: Line, tmp_path: Path) -> None:
    """Whoever applies learns of it without asking."""
    before = line.run("true").unconfirmed
    (tmp_path / "run/unconfirmed").mkdir()
    (tmp_path / "run/unconfirmed/trial").touch()

    assert not before
    assert line.run("true").unconfirmed
    line.close()


def test_a_command_that_is_ended_for_its_time_is_told_from_one_that_says_so_itself(line: Line) -> None:
    """`timeout` has the same status, and is an answer."""
    assert [line.run("exit 124", timeout=60).late, line.run("sleep 60", timeout=0.1).late] == [False, True]
    line.close()


def test_a_far_end_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server that is gone can stop an agent for good; whoever has said how long waits no longer."""
    monkeypatch.setattr("roles.engine.line._GRACE", 0.5)
    line = Line("here", ("sh", "-c", 'eval "exec $1"', "sh"), opening(tmp_path))

    with pytest.raises(Trouble, match="does not answer") as trouble:
        line.run("kill -STOP $PPID; sleep 600", timeout=0.5)

    assert trouble.value.kind is Kind.UNREACHED
    line.close()
