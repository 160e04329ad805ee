"""The atomic writer on a machine that lacks something."""

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
    """Return a file system of 64 KiB that holds an old key and is almost full."""
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
    """Write 40 KB at the target in a process of its own."""
    command = [*prefix, sys.executable, str(CHILD), "whole", str(target), "new-key\n", "5000"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_leaves_the_old_file(disk: Path) -> None:
    """Exit 4 and one line that says so; no temporary file is left to fill the disk further."""
    done = write(disk / "ca.key")

    assert (done.returncode, done.stderr) == (
        4,
        "cannot write ca.key: no space left on device; free some disk space, then run it again\n",
    )
    assert (disk / "ca.key").read_bytes() == OLD
    assert {file.name for file in disk.iterdir()} == {"ca.key", "ballast"}


def test_a_read_only_disk_is_told(disk: Path) -> None:
    """Exit 4, and what to do."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)

    done = write(disk / "ca.key")

    assert done.returncode == 4
    assert done.stderr.startswith("cannot write ca.key: the file system is read-only; ")


def test_a_limit_on_file_size_is_told(tmp_path: Path) -> None:
    """Exit 4 and no half a file, where `ulimit -f` is lower than what is to be written."""
    done = write(tmp_path / "ca.key", "bash", "-c", 'ulimit -f 8; exec "$@"', "bash")

    assert done.returncode == 4
    assert "`ulimit -f`" in done.stderr
    assert list(tmp_path.iterdir()) == []
