"""Tests of the atomic file writer, killed at each of its system calls."""

import sys
from pathlib import Path

import pytest

from bedplate.files import write_whole
from tests.testlab.run import Point, crash_points, die_at, need_program

CHILD = Path(__file__).with_name("write_child.py")
OLD, NEW, TIMES = b"old-key\n" * 500, "new-key\n", 500


def command(writer: str, target: Path) -> list[str]:
    """Return the command that writes the new key to the target."""
    return [sys.executable, "-S", "-B", str(CHILD), writer, str(target), NEW, str(TIMES)]


def seeded(folder: Path, old: bytes | None) -> Path:
    """Return a target in a new folder, with the old key if there is one."""
    folder.mkdir()
    target = folder / "ca.key"
    if old is not None:
        write_whole(target, old, 0o600)
    return target


def damage(target: Path, old: bytes | None) -> set[str]:
    """Return what is wrong with the target and the other files in its folder."""
    content = target.read_bytes() if target.exists() else None
    readable = any(file.stat().st_mode & 0o077 for file in target.parent.iterdir())
    torn = content not in (old, NEW.encode() * TIMES)
    return {name for name, wrong in (("torn", torn), ("readable", readable)) if wrong}


def damages(writer: str, folder: Path, old: bytes | None) -> dict[Point, set[str]]:
    """Return the damage after a crash at each system call of a writer."""
    need_program("strace")
    points = crash_points(command(writer, seeded(folder / "traced", old)), folder / "trace")
    problems = {}
    for number, point in enumerate(points):
        target = seeded(folder / str(number), old)
        die_at(point, command(writer, target))
        problems[point] = damage(target, old)
    return problems


@pytest.mark.parametrize("old", [OLD, None], ids=["old file", "no file"])
def test_a_crash_at_any_call_leaves_old_or_new(tmp_path: Path, old: bytes | None) -> None:
    """The file is complete, and never readable by others."""
    problems = damages("whole", tmp_path, old)

    assert {"openat", "write", "fsync", "rename"} <= {point.call for point in problems}
    assert {str(point): wrong for point, wrong in problems.items() if wrong} == {}


def test_the_next_write_removes_temporary_files(tmp_path: Path) -> None:
    """A writer that is killed before its rename leaves a temporary file; the next write removes it."""
    need_program("strace")
    target = seeded(tmp_path / "keys", OLD)
    rename = next(p for p in crash_points(command("whole", target), tmp_path / "trace") if p.call == "rename")
    die_at(rename, command("whole", target))
    file_count = len(list(target.parent.iterdir()))

    write_whole(target, OLD, 0o600)

    assert (file_count, list(target.parent.iterdir())) == (2, [target])


def test_a_write_in_place_is_detected(tmp_path: Path) -> None:
    """The control case: a write in place tears the file and makes it readable by others."""
    problems = damages("plain", tmp_path, None)

    assert set().union(*problems.values()) == {"torn", "readable"}
