"""Who has a node's lock, and what is remembered of whoever had it: the real agent, in folders of a test."""

import subprocess
import threading
from pathlib import Path

import pytest

from bedplate.nodes.event import Kind, Trouble
from roles.engine.line import Line
from tests.support.engine_line import line_here


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Give a line that has the lock."""
    return line_here(tmp_path)


def test_of_two_applies_one_wins_and_the_other_is_told_who(line: Line, tmp_path: Path) -> None:
    """A node is worked on by one at a time."""
    with pytest.raises(Trouble, match="ada on her desk") as refused:
        line_here(tmp_path)

    assert refused.value.kind is Kind.HELD
    line.close()


def test_a_node_without_room_for_its_lock_is_told(tmp_path: Path) -> None:
    """What the system says becomes words: a folder that cannot be made is no lost connection."""
    (tmp_path / "run").write_text("in the way")

    with pytest.raises(Trouble, match=r"taking its lock: .*File exists") as refused:
        line_here(tmp_path)

    assert refused.value.kind is Kind.FAILED


def test_whoever_only_looks_leaves_nothing(tmp_path: Path) -> None:
    """The folder of what outlives a boot is made when there is something to remember."""
    looking = line_here(tmp_path, "shared")
    looking.close()
    before = (tmp_path / "memory").exists()
    working = line_here(tmp_path)
    working.run("true", note="Settings")

    assert not before
    assert (tmp_path / "memory/unfinished").read_text() == "Settings\n"
    working.close()


def test_two_looks_go_together_and_none_beside_an_apply(tmp_path: Path) -> None:
    """A check changes nothing, so that others may check too."""
    first, second = (line_here(tmp_path, "shared") for _ in range(2))

    with pytest.raises(Trouble, match="worked on"):
        line_here(tmp_path)

    first.close()
    second.close()


def test_the_lock_is_roots_alone(line: Line, tmp_path: Path) -> None:
    """Whoever may read it could hold it, and no apply would come through; one that others could read is closed."""
    lock = tmp_path / "run/apply.lock"
    first = lock.stat().st_mode & 0o777
    line.close()
    lock.chmod(0o644)

    line_here(tmp_path).close()

    assert (first, lock.stat().st_mode & 0o777) == (0o600, 0o600)


def test_a_second_connection_needs_no_lock(line: Line, tmp_path: Path) -> None:
    """Whoever confirms a change comes in while the apply still holds the node."""
    second = line_here(tmp_path, "none")

    assert second.run("echo in").out == "in\n"
    second.close()
    line.close()


def test_a_silent_holder_is_waited_for(line: Line, tmp_path: Path) -> None:
    """One whose connection was cut finishes its command and leaves: who comes next need not be sent away."""
    lock = tmp_path / "run/apply.lock"
    _age(lock, 60)
    threading.Timer(0.7, line.close).start()

    after = line_here(tmp_path, patience=20)

    assert after.run("true").status == 0
    after.close()


def test_what_was_begun_is_remembered_until_all_is_done(tmp_path: Path) -> None:
    """An apply that was cut off leaves the names of what it changed, for what answers them has not run."""
    cut = line_here(tmp_path)
    cut.run("true", note="Settings of sshd")
    cut.put(str(tmp_path / "file"), b"", note="A file")
    cut.run("true", note="A file")
    cut.close()

    after = line_here(tmp_path, patience=5)
    unfinished = after.unfinished
    after.finish()
    after.close()
    last = line_here(tmp_path, patience=5)

    assert unfinished == ("Settings of sshd", "A file")
    assert last.unfinished == ()
    last.close()


def _age(path: Path, seconds: float) -> None:
    subprocess.run(["touch", "-d", f"{seconds} seconds ago", str(path)], check=True)
