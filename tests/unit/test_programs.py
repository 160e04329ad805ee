"""What programs on machines share: the run of other programs, atomic writes, and their copies on machines."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bedplate.programs.gate.machine import Expected
from bedplate.programs.program import MissingProgramError, ProgramError, output, run, write_file, write_text
from roles.base import LIBRARY, STAGES, program_files
from roles.gate.role import Gate
from roles.vpnagent.role import VpnAgent
from tests.testlab.fakes.laptop import oldest_python
from tests.testlab.fakes.node import Recorder, recorded

START = "/usr/local/sbin/start"


@pytest.mark.parametrize(
    ("name", "arguments", "printed", "python"),
    [
        ("gate", "--help", "--burn-in", sys.executable),
        ("metrics", "--help", "MOUNT", sys.executable),
        ("worker", "", "usage: bedplate-worker", sys.executable),
        ("gateway", "--help", "activate", sys.executable),
        ("agent", "", "follow RUN", oldest_python()),
        ("gpus", "--help", "who has GPUs", oldest_python()),
    ],
)
def test_a_copied_program_needs_only_its_own_files(
    name: str, arguments: str, printed: str, python: str, tmp_path: Path
) -> None:
    """The files that a role copies run with the standard library, and without any other module of the project.

    Those of machines where people log in run on Python 3.9.
    """
    *modules, start = program_files(name, START)
    for file in modules:
        path = tmp_path / Path(file.path).relative_to(LIBRARY)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    (tmp_path / "start").write_text(start.text.replace(LIBRARY, str(tmp_path)))

    command = (python, "-ISB", str(tmp_path / "start"), *arguments.split())
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    assert printed in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_of_a_program_is_replaced_last() -> None:
    """A new command never starts before its modules are there; an old one has other files."""
    files = program_files("gate", START)

    assert [file.path for file in files].index(START) == len(files) - 1
    assert {f"{LIBRARY}/gate/programs/gate/errors.txt", f"{LIBRARY}/gate/programs/program.py"} <= {
        f.path for f in files
    }


def test_systemd_reads_units_once_before_services_start() -> None:
    """Roles only write their units; unchanged units are not read again."""
    played = Recorder(recorded("debian-12")).play(Gate({"": Expected()}), VpnAgent(), stages=STAGES[1:])
    again = Recorder(recorded("debian-12"), played.disk).play(Gate({"": Expected()}), VpnAgent(), stages=STAGES[1:])

    read = played.names.index("Reload systemd")
    assert all(name.startswith(("Write ", "Create ")) for name in played.names[:read])
    assert played.step("Reload systemd").commands == ("systemctl daemon-reload",)
    assert not again.step("Reload systemd").changed


def test_a_program_gets_its_input_and_returns_its_output() -> None:
    """The output of a program is bytes; text that cannot be decoded is no error."""
    assert run("sh", "-c", "cat; echo no >&2", data=b"\xff\n").out == b"\xff\n"
    assert output("cat", text="a\n") == "a\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("bedplate-missing", "now"), "bedplate-missing is not installed"),
        (("sh", "-c", "echo first; echo second; exit 3"), "sh -c failed: first / second"),
        (("sh", "-c", "echo out; echo why >&2; exit 3"), "sh -c failed: why"),
        (("/bin/false",), "false failed: exit status 1"),
        (("sh", "-c", "sleep 60 & sleep 60"), "sh -c did not end within 1 s"),
        (("/",), "/ cannot be started: Permission denied"),
    ],
)
def test_a_failed_program_is_one_form_of_error(command: tuple[str, ...], message: str) -> None:
    """The text says which program failed, and why: the last lines of its errors, or else of its output."""
    with pytest.raises(ProgramError) as error:
        output(*command, seconds=1)

    assert str(error.value) == message
    assert isinstance(error.value, MissingProgramError) == ("installed" in message)


def test_a_program_that_prints_without_end_is_killed() -> None:
    """The memory for the output of a program is limited."""
    with pytest.raises(ProgramError, match="head -c printed more than 32 MiB"):
        output("head", "-c", "2000000000", "/dev/zero")


def test_a_service_that_a_program_starts_is_not_waited_for() -> None:
    """A program has ended when its process has, also if another process keeps its output open."""
    began = time.monotonic()

    assert output("sh", "-c", "sleep 5 & echo done") == "done\n"

    assert time.monotonic() - began < 3


def test_a_written_file_has_its_mode_before_others_see_it(tmp_path: Path) -> None:
    """The file appears with its final mode, and replaces a link instead of following it."""
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")

    write_file(tmp_path / "secret", b"key", 0o600, (os.getuid(), -1))
    write_text(tmp_path / "a/b/text", "word")

    assert (tmp_path / "secret").read_bytes() == b"key"
    assert not (tmp_path / "elsewhere").exists()
    assert [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("secret", "a/b/text")] == [0o600, 0o644]


def test_a_write_syncs_the_file_and_then_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure the file is there, with its content."""
    synced = list[tuple[bool, bool]]()
    sync = os.fsync

    def record(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "file").exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", record)
    write_file(tmp_path / "file", b"text")

    assert synced == [(False, False), (True, True)]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk changes nothing."""
    write_file(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", lambda _handle: (_ for _ in ()).throw(OSError(28, "no space")))

    with pytest.raises(OSError, match="no space"):
        write_file(tmp_path / "file", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
