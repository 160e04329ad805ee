"""Atomic writes of one file and of several."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.errors import MachineError
from bedplate.files import os_errors_as_machine_errors, try_out, write_together, write_whole

HOST = os.uname().nodename
NO_PID = 2**22 + 1  # above the maximum of Linux


@pytest.fixture
def umask() -> Iterator[None]:
    """Run under the usual umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_new_content_replaces_the_old(tmp_path: Path) -> None:
    """No other file is left in the folder."""
    path = tmp_path / "fleet.lock"
    path.write_bytes(b"longer than the new content")

    write_whole(path, b"new")

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"fleet.lock": b"new"}


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o644, 0o644), (0o666, 0o644)])
def test_a_file_has_its_mode(tmp_path: Path, umask: None, mode: int, expected: int) -> None:
    """The umask applies; the mode of the old file does not matter."""
    path = tmp_path / "ca.key"
    path.touch(0o666)

    write_whole(path, b"key", mode)

    assert path.stat().st_mode & 0o777 == expected


def test_a_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """So a planted link cannot redirect the write."""
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "fleet.lock"
    elsewhere.write_bytes(b"theirs")
    path.symlink_to(elsewhere)

    write_whole(path, b"ours")

    assert (path.is_symlink(), elsewhere.read_bytes()) == (False, b"theirs")


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        (f".fleet.lock.{HOST}.tmp.{NO_PID}.aa", False),
        (f".fleet.lock.{HOST}.tmp.{10**20}.aa", False),
        (f".fleet.lock.{HOST}.tmp.{os.getpid()}.aa", True),
        (f".fleet.lock.another-host.tmp.{NO_PID}.aa", True),
        (f".other.lock.{HOST}.tmp.{NO_PID}.aa", True),
        (f".fleet.lock.{HOST}.tmp.notes", True),
    ],
    ids=["dead", "no pid at all", "living", "of another host", "of another file", "not temporary"],
)
def test_only_temporary_files_of_dead_processes_are_deleted(tmp_path: Path, name: str, *, is_kept: bool) -> None:
    """Files of a live writer, of another host and of other names are kept."""
    (tmp_path / name).touch()

    write_whole(tmp_path / "fleet.lock", b"new")

    assert (tmp_path / name).exists() == is_kept


def test_a_failure_leaves_no_temporary_file(tmp_path: Path) -> None:
    """Here the rename fails, because the path is a folder."""
    path = tmp_path / "fleet.lock"
    path.mkdir()

    with pytest.raises(MachineError, match=r"cannot write fleet\.lock: it is a folder"):
        write_whole(path, b"new")

    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_a_machine_error(tmp_path: Path) -> None:
    """The message has the file, its path and the reason."""
    with pytest.raises(MachineError) as error:
        write_whole(tmp_path / "gone" / "fleet.lock", b"new")

    assert error.value.what == "cannot write fleet.lock: the folder does not exist"
    assert (error.value.where, error.value.exit_code) == (str(tmp_path / "gone" / "fleet.lock"), 4)


def test_an_unknown_error_is_not_converted(tmp_path: Path) -> None:
    """An error that is not in the table is a defect, and keeps its type."""
    with pytest.raises(ChildProcessError), os_errors_as_machine_errors(tmp_path):
        raise ChildProcessError


def test_several_files_are_written_together(tmp_path: Path) -> None:
    """All have their new content, and no other file is left in the folder."""
    write_together({tmp_path / "offers.txt": b"new", tmp_path / "prices.txt": b"dear"})

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "offers.txt": b"new",
        "prices.txt": b"dear",
    }


def test_if_one_file_cannot_be_written_none_is(tmp_path: Path) -> None:
    """The error comes before the first file is replaced."""
    first = tmp_path / "offers.txt"
    first.write_bytes(b"old")

    with pytest.raises(MachineError, match=r"cannot write prices\.txt: the folder does not exist"):
        write_together({first: b"new", tmp_path / "gone" / "prices.txt": b"dear"})

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"offers.txt": b"old"}


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe"])
def test_a_device_or_pipe_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """Other programs need the device; this test uses a pipe."""
    pipe, path = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    path.symlink_to(pipe)

    with pytest.raises(MachineError, match="it is not a regular file"):
        write_whole(pipe if kind == "pipe" else path, b"new")

    assert (pipe.is_fifo(), path.is_symlink()) == (True, True)


def test_writing_can_be_checked_beforehand(tmp_path: Path) -> None:
    """`try_out` raises as the write would, and changes nothing."""
    old = tmp_path / "audit.xml"
    old.write_bytes(b"old")

    try_out([old, tmp_path / "audit.html"])
    with pytest.raises(MachineError, match="the folder does not exist"):
        try_out([old, tmp_path / "gone" / "audit.html"])

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"audit.xml": b"old"}
