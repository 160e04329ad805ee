"""Deaths at every system call: a program is traced once, then killed as it enters each call between its marks."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START, END = "@@start", "@@end"


@dataclass(frozen=True)
class Point:
    """The n-th time that a program makes a system call, counted from its start."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}#{self.number}"


def crash_points(command: Sequence[str], trace: Path) -> tuple[Point, ...]:
    """Return every system call that a command makes between its marks, in order."""
    _strace(command, "-o", str(trace))
    counts: Counter[str] = Counter()
    return tuple(_between_marks(trace.read_text().splitlines(), counts))


def die_at(point: Point, command: Sequence[str]) -> None:
    """Run a command and kill it as it enters that call."""
    inject = f"inject={point.call}:signal=KILL:when={point.number}"
    done = _strace(command, "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject)
    if done.returncode != -signal.SIGKILL or START not in done.stdout or END in done.stdout:
        raise AssertionError(f"{point} did not kill between the marks: {done}")


def _between_marks(lines: Sequence[str], counts: Counter[str]) -> Iterator[Point]:
    inside = False
    for line in lines:
        call = line.partition("(")[0]
        counts[call] += 1
        if END in line:
            return
        if inside:
            yield Point(call, counts[call])
        inside = inside or START in line


def _strace(command: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    # A fixed hash seed: the program must make the same calls each time, or the numbers mean nothing.
    return subprocess.run(
        ["strace", "-qq", *options, *command],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
    )
