"""The hold on fleet.lock."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.errors import HeldError, MachineError
from bedplate.lock import held

HOLDER = """
import sys
from pathlib import Path
from bedplate.hold import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
NO_PID = 2**22 + 1  # one more than Linux ever gives


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a lock."""
    return tmp_path / "fleet.lock"


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return another process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_writer_is_told_who_holds_the_lock(path: Path, other: subprocess.Popen[str]) -> None:
    """At once, with host, process, age and command."""
    with pytest.raises(HeldError) as refusal, held(path):
        pass

    assert f"on {os.uname().nodename}, process {other.pid}, for 0 s: -c {path}" in refusal.value.what
    assert refusal.value.exit_code == 5


def test_a_hold_ends_with_its_block(path: Path) -> None:
    """Whether the block succeeds or fails; nothing is left in the folder."""
    with pytest.raises(ZeroDivisionError), held(path):
        raise ZeroDivisionError

    with held(path):
        pass
    assert list(path.parent.iterdir()) == []


def test_a_hold_dies_with_its_holder(path: Path, other: subprocess.Popen[str]) -> None:
    """After kill -9 the next writer needs no clean-up and no patience."""
    other.send_signal(signal.SIGKILL)
    other.wait()

    with held(path):
        signature = json.loads(path.with_name(".fleet.lock.held").read_bytes())

    assert signature["pid"] == os.getpid()


@pytest.mark.parametrize("pid", [NO_PID, 10**20, "ghost"])
def test_a_dead_holder_is_never_named(path: Path, other: subprocess.Popen[str], pid: object) -> None:
    """A signature that a killed writer left says nothing about who holds the lock now."""
    dead = {"user": "ghost", "host": os.uname().nodename, "pid": pid, "since": 0.0, "command": "boo"}
    path.with_name(".fleet.lock.held").write_text(json.dumps(dead))

    with pytest.raises(HeldError, match="somebody who has not signed yet"), held(path):
        pass


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A hold in a folder that is not there is a fault of the machine."""
    with (
        pytest.raises(MachineError, match="the folder does not exist"),
        held(tmp_path / "gone" / "fleet.lock"),
    ):
        pass
