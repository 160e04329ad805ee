"""Tests of the atomic file writer on a full disk, a read-only disk, and with a limit on the file size."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testlab.run import need_program, need_root

CHILD = Path(__file__).with_name("write_child.py")
OLD = b"old-key\n" * 500


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return an almost full file system of 64 KiB with an old key."""
    need_root()
    need_program("mount")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", folder], check=True)
    try:
        (folder / "ca.key").write_bytes(OLD)
        (folder / "ballast").write_bytes(b"x" * 40 * 1024)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def write(target: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    """Write 40 KB to the target in another process."""
    command = [*prefix, sys.executable, str(CHILD), "whole", str(target), "new-key\n", "5000"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_leaves_the_old_file(disk: Path) -> None:
    """The exit status is 4 with one line of error, and no temporary file is left."""
    result = write(disk / "ca.key")

    assert (result.returncode, result.stderr) == (
        4,
        "cannot write ca.key: no space left on device; free some disk space, then run it again\n",
    )
    assert (disk / "ca.key").read_bytes() == OLD
    assert {file.name for file in disk.iterdir()} == {"ca.key", "ballast"}


def test_a_read_only_disk_is_reported(disk: Path) -> None:
    """The exit status is 4, and the error names the cause and the fix."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)

    result = write(disk / "ca.key")

    assert result.returncode == 4
    assert result.stderr.startswith("cannot write ca.key: the file system is read-only; ")


def test_a_file_size_limit_is_reported(tmp_path: Path) -> None:
    """If `ulimit -f` is too low, the exit status is 4 and no partial file is left."""
    result = write(tmp_path / "ca.key", "bash", "-c", 'ulimit -f 8; exec "$@"', "bash")

    assert result.returncode == 4
    assert "`ulimit -f`" in result.stderr
    assert list(tmp_path.iterdir()) == []
