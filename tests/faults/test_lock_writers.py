"""Several real processes that write one lock."""

import subprocess
import sys
from pathlib import Path

from bedplate.lock import read_lock
from tests.testlab.fleets.oracle import faults

ROOT = Path(__file__).parents[2]
PROCESSES, ROUNDS = 8, 8


def test_no_update_is_lost_between_writers(tmp_path: Path) -> None:
    """Each of eight processes records its own sites: the lock holds them all, and who came second got a 5."""
    lock = tmp_path / "fleet.lock"
    command = [sys.executable, "-m", "tests.faults.recorder_child", str(lock)]

    children = [
        subprocess.Popen([*command, str(number), str(ROUNDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    statuses = {status for child in children for status in child.communicate(timeout=120)[0].split()}

    held = read_lock(lock, "lab").blocks
    assert sum(path.startswith("site/") for path in held) == PROCESSES * ROUNDS
    assert faults({path: str(block) for path, block in held.items()}, {}, "10.64.0.0/10") == []
    assert statuses == {"5"}
