"""Tests of fleet.lock with several processes that write it at the same time."""

import subprocess
import sys
from pathlib import Path

from bedplate.lock import read_lock
from tests.testlab.fleets.oracle import faults

ROOT = Path(__file__).parents[2]
PROCESSES, ROUNDS = 8, 8


def test_no_update_is_lost_between_writers(tmp_path: Path) -> None:
    """Eight processes record their own sites: the lock has all of them, and each refusal has exit status 5."""
    lock = tmp_path / "fleet.lock"
    command = [sys.executable, "-m", "tests.faults.recorder_child", str(lock)]

    children = [
        subprocess.Popen([*command, str(number), str(ROUNDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    statuses = {status for child in children for status in child.communicate(timeout=300)[0].split()}

    blocks = read_lock(lock, "lab").blocks
    assert sum(path.startswith("site/") for path in blocks) == PROCESSES * ROUNDS
    assert faults({path: str(block) for path, block in blocks.items()}, {}, "10.64.0.0/10") == []
    assert statuses == {"5"}
