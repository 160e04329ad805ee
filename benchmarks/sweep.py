"""Memory and time of a sweep of the hub with 2,000 queued runs, budgets, an idle rule, and messages to their people.

The record is a stand-in of MLflow's calls in this process. Target: 300 MB.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.unit.test_hub_sweep import FakeRecord

RUNS, TAGS, MOST = 2_000, 35, 300_000_000
# As the unit does, with other folders.
_SWEEP = """import sys
from pathlib import Path
from bedplate.programs.hub import __main__ as hub, messages
from bedplate.programs.hub.sweep import Record
folder = Path(sys.argv[1])
Record.__init__.__defaults__ = (str(folder / "socket"), 60)
hub.VOLUME, hub.PEOPLE, messages.SETTINGS = folder, folder / "people", folder / "settings"
hub.main(["sweep"])
"""


def make_volume(folder: Path) -> None:
    """Write what the hub knows: a person who has all runs, limits, and no machine."""
    for name in ("tokens", "public"):
        (folder / name).mkdir()
    (folder / "people").write_text("20001 ada\n")
    (folder / "messages").write_text("")
    (folder / "settings").write_text(json.dumps({"people": {}, "relay": "", "sender": ""}))
    (folder / "tokens/runs").write_text("".join(f"{number:032x} 20001\n" for number in range(RUNS)))
    limits = {"budgets": {"ada": 1_000}, "enforce": True, "idle": {"after": 10_800, "then": "stop"}}
    facts = {"time": time.time(), "faults": [], "machines": {}, **limits}
    (folder / "public/fleet.json").write_text(json.dumps(facts))


def main() -> int:
    """Print the figures; return 1 if the target is missed."""
    with TemporaryDirectory() as name, FakeRecord(Path(name, "socket")) as record:
        folder, record.page = Path(name), 200
        make_volume(folder)
        for number in range(RUNS):
            tags = {f"tag{index}": "x" * 60 for index in range(TAGS - 3)}
            record.add(f"{number:032x}", time.time() - 60, state="queued", image="r@sha256:1", price="2.5", **tags)
        start = time.monotonic()
        environment = {"CREDENTIALS_DIRECTORY": name, "PATH": ""}
        done = subprocess.run((sys.executable, "-c", _SWEEP, name), env=environment, check=False)
        seconds = time.monotonic() - start
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        record.shutdown()
        left = sum(run["status"] == "RUNNING" for run in record.runs.values())
    size, spent = usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime
    print(
        f"a sweep of {RUNS} queued runs: {size / 1e6:.0f} MB (target {MOST / 1e6:.0f}), {spent:.2f} s of processor, "
        f"{seconds:.1f} s with the record; {left} go on"
    )
    return int(bool(done.returncode) or size > MOST or left != RUNS)


if __name__ == "__main__":
    sys.exit(main())
