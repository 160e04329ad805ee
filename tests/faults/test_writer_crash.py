"""The atomic writer, killed at every system call that it makes."""

import sys
from pathlib import Path

import pytest

from bedplate.writer import write_whole
from tests.testlab.run import Point, crash_points, die_at, need_program

CHILD = Path(__file__).with_name("write_child.py")
OLD, NEW, TIMES = b"old-key\n" * 500, "new-key\n", 500


def command(writer: str, target: Path) -> list[str]:
    """Return the command that writes the new key at the target."""
    return [sys.executable, "-S", "-B", str(CHILD), writer, str(target), NEW, str(TIMES)]


def seeded(folder: Path, old: bytes | None) -> Path:
    """Return a target in a new folder, holding the old key where there is one."""
    folder.mkdir()
    target = folder / "ca.key"
    if old is not None:
        write_whole(target, old, 0o600)
    return target


def damage(target: Path, old: bytes | None) -> set[str]:
    """Return what is wrong with the target and what lies beside it."""
    found = target.read_bytes() if target.exists() else None
    loose = any(file.stat().st_mode & 0o077 for file in target.parent.iterdir())
    torn = found not in (old, NEW.encode() * TIMES)
    return {name for name, wrong in (("torn", torn), ("loose", loose)) if wrong}


def damages(writer: str, folder: Path, old: bytes | None) -> dict[Point, set[str]]:
    """Return the damage of a death at each system call of a writer."""
    need_program("strace")
    points = crash_points(command(writer, seeded(folder / "traced", old)), folder / "trace")
    found = {}
    for number, point in enumerate(points):
        target = seeded(folder / str(number), old)
        die_at(point, command(writer, target))
        found[point] = damage(target, old)
    return found


@pytest.mark.parametrize("old", [OLD, None], ids=["over an old file", "where none was"])
def test_a_death_at_any_call_leaves_old_or_new(tmp_path: Path, old: bytes | None) -> None:
    """Whole, and never readable by others for an instant."""
    found = damages("whole", tmp_path, old)

    assert {"openat", "write", "fsync", "rename"} <= {point.call for point in found}
    assert {str(point): wrong for point, wrong in found.items() if wrong} == {}


def test_the_next_write_sweeps_what_the_dead_left(tmp_path: Path) -> None:
    """A writer that died before its rename leaves a temporary file; the next one removes it."""
    need_program("strace")
    target = seeded(tmp_path / "keys", OLD)
    rename = next(p for p in crash_points(command("whole", target), tmp_path / "trace") if p.call == "rename")
    die_at(rename, command("whole", target))
    left = len(list(target.parent.iterdir()))

    write_whole(target, OLD, 0o600)

    assert (left, list(target.parent.iterdir())) == (2, [target])


def test_a_plain_writer_is_found_out(tmp_path: Path) -> None:
    """The control: opening the target and writing to it tears it, and lets others read it."""
    found = damages("plain", tmp_path, None)

    assert set().union(*found.values()) == {"torn", "loose"}
