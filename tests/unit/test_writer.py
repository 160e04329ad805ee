"""Files written whole."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.errors import MachineError
from bedplate.writer import told_plainly, try_out, write_together, write_whole

HOST = os.uname().nodename
NO_PID = 2**22 + 1  # one more than Linux ever gives


@pytest.fixture
def umask() -> Iterator[None]:
    """Run under the usual umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_new_content_replaces_the_old(tmp_path: Path) -> None:
    """All of it, and nothing else is left in the folder."""
    path = tmp_path / "fleet.lock"
    path.write_bytes(b"longer than the new content")

    write_whole(path, b"new")

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"fleet.lock": b"new"}


@pytest.mark.parametrize(("mode", "seen"), [(0o600, 0o600), (0o644, 0o644), (0o666, 0o644)])
def test_a_file_has_its_mode(tmp_path: Path, umask: None, mode: int, seen: int) -> None:
    """As asked, narrowed by the umask; what the old file had does not matter."""
    path = tmp_path / "ca.key"
    path.touch(0o666)

    write_whole(path, b"key", mode)

    assert path.stat().st_mode & 0o777 == seen


def test_a_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """Whoever plants a link gains no write elsewhere."""
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "fleet.lock"
    elsewhere.write_bytes(b"theirs")
    path.symlink_to(elsewhere)

    write_whole(path, b"ours")

    assert (path.is_symlink(), elsewhere.read_bytes()) == (False, b"theirs")


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        (f".fleet.lock.{HOST}.tmp.{NO_PID}.aa", False),
        (f".fleet.lock.{HOST}.tmp.{10**20}.aa", False),
        (f".fleet.lock.{HOST}.tmp.{os.getpid()}.aa", True),
        (f".fleet.lock.another-host.tmp.{NO_PID}.aa", True),
        (f".other.lock.{HOST}.tmp.{NO_PID}.aa", True),
        (f".fleet.lock.{HOST}.tmp.notes", True),
    ],
    ids=["dead", "no pid at all", "living", "of another host", "of another file", "no temporary"],
)
def test_only_temporaries_of_the_dead_are_swept(tmp_path: Path, name: str, *, stays: bool) -> None:
    """A live writer's file, another host's and anybody else's stay."""
    (tmp_path / name).touch()

    write_whole(tmp_path / "fleet.lock", b"new")

    assert (tmp_path / name).exists() == stays


def test_a_failure_leaves_no_temporary_file(tmp_path: Path) -> None:
    """Here the rename fails, since a folder has the name."""
    path = tmp_path / "fleet.lock"
    path.mkdir()

    with pytest.raises(MachineError, match=r"cannot write fleet\.lock: a folder has that name"):
        write_whole(path, b"new")

    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    """The message names the file, the place and what to do."""
    with pytest.raises(MachineError) as refusal:
        write_whole(tmp_path / "gone" / "fleet.lock", b"new")

    assert refusal.value.what == "cannot write fleet.lock: the folder does not exist"
    assert (refusal.value.where, refusal.value.exit_code) == (str(tmp_path / "gone" / "fleet.lock"), 4)


def test_an_unforeseen_error_is_not_dressed_up(tmp_path: Path) -> None:
    """What the table of lacks does not name is a defect, and comes through as it is."""
    with pytest.raises(ChildProcessError), told_plainly(tmp_path):
        raise ChildProcessError


def test_files_written_together_all_have_their_new_content(tmp_path: Path) -> None:
    """And nothing else is left in the folder."""
    write_together({tmp_path / "offers.txt": b"new", tmp_path / "prices.txt": b"dear"})

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "offers.txt": b"new",
        "prices.txt": b"dear",
    }


def test_where_one_cannot_be_written_none_is(tmp_path: Path) -> None:
    """What the machine lacks shows before the first file takes its name."""
    first = tmp_path / "offers.txt"
    first.write_bytes(b"old")

    with pytest.raises(MachineError, match=r"cannot write prices\.txt: the folder does not exist"):
        write_together({first: b"new", tmp_path / "gone" / "prices.txt": b"dear"})

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"offers.txt": b"old"}


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe"])
def test_what_is_no_file_keeps_its_place(tmp_path: Path, kind: str) -> None:
    """A device that became a file would be gone for every program of the machine; here a pipe, which nobody guards."""
    pipe, path = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    path.symlink_to(pipe)

    with pytest.raises(MachineError, match="it is no file"):
        write_whole(pipe if kind == "pipe" else path, b"new")

    assert (pipe.is_fifo(), path.is_symlink()) == (True, True)


def test_files_are_tried_out(tmp_path: Path) -> None:
    """What cannot be written is told beforehand, and nothing is written yet."""
    old = tmp_path / "audit.xml"
    old.write_bytes(b"old")

    try_out([old, tmp_path / "audit.html"])
    with pytest.raises(MachineError, match="the folder does not exist"):
        try_out([old, tmp_path / "gone" / "audit.html"])

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"audit.xml": b"old"}
