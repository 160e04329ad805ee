"""The snapshot of a folder of 205 MB after one edit, and its pack, next to rsync of the same folder.

Both run in turns, so that the load of the machine affects both. Needs git and rsync. The target is 0.15 s of processor,
with all processes of git.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bedplate.programs.bp.snapshot import open_shadow

FILES, SIZE, ROUNDS, TARGET = 6_431, 205_000_000, 9, 0.15


def main() -> None:
    """Measure, and print the figures; exit with 1 if the target is missed."""
    with TemporaryDirectory() as name:
        base = Path(name)
        make_folder(base / "code", FILES, SIZE)
        first = seconds(lambda: snapshot(base))
        seconds(lambda: rsync(base))
        times: dict[str, list[tuple[float, float]]] = {"snapshot and pack": [], "rsync": []}
        for number in range(ROUNDS):
            with (base / "code/0/0.py").open("a") as file:
                file.write(f"edit = {number}\n")
            times["snapshot and pack"].append(seconds(lambda: snapshot(base)))
            times["rsync"].append(seconds(lambda: rsync(base)))
    print(f"first time: {first[0]:.1f} s of processor, {first[1]:.1f} s elapsed")
    for what, values in times.items():
        processor, elapsed = (median(figures) for figures in zip(*values, strict=True))
        print(f"after one edit, {what}: {processor:.3f} s of processor, {elapsed:.3f} s elapsed")
    sys.exit(0 if median(processor for processor, _ in times["snapshot and pack"]) <= TARGET else 1)


def make_folder(folder: Path, files: int, size: int) -> None:
    """Write so many files with these bytes in all, which a compression halves."""
    source = random.Random(1)  # noqa: S311  the same files each time
    for number in range(files):
        path = folder / str(number % 40) / f"{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        half = size // files // 2
        path.write_bytes(source.randbytes(half) + b"x = 1\n" * (half // 6))


def snapshot(base: Path) -> None:
    """Take a snapshot, and make its packs."""
    with open_shadow(base / "cache", base / "code") as shadow:
        shadow.packs(shadow.take().tree)


def rsync(base: Path) -> None:
    """Copy what has changed to another folder of this disk."""
    command = ("rsync", "--archive", "--delete", f"{base}/code/", f"{base}/copy")
    subprocess.run(command, check=True)


def seconds(call: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of processor of a call with its processes, and the elapsed ones."""
    os.sync()
    before = os.times()
    call()
    after = os.times()
    return sum(after[:4]) - sum(before[:4]), after.elapsed - before.elapsed


if __name__ == "__main__":
    main()
