"""The driver of a search as a program, in the folder that `bp search` ships."""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path

from ..agent.restarts import FINAL
from ..bp.hub import BpError
from ..bp.records import change_run, has_run_ended, tagged_runs
from ..study import STOP
from .driver import Driver
from .edges import StudyCluster, StudyHub, StudyMachine, StudyRecord

# Seconds between two looks: a share of the age of the youngest trial, within limits.
_SHARE, _PAUSE, _LONGEST_PAUSE = 0.02, 2.0, 30.0
# Seconds between two lines, and when the last one was printed.
_SIGN, _said = 600.0, [0.0]
_FAILED, _STOPPED = 1, 143
# Starts of trials at once, and stops.
_AT_ONCE = 4


def main(folder: Path) -> int:
    """Run the search of a folder; return the exit code."""
    facts = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    name = facts["name"]
    # Trials have the Python of the machine, or an environment of their own.
    own = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(path for path in os.environ["PATH"].split(os.pathsep) if path != own)
    hub = StudyHub(facts["document"], os.environ["STUDY_TOKEN"])
    machine = (StudyCluster if "place" in facts else StudyMachine)(hub, facts)
    driver = Driver(facts, StudyRecord(hub, facts), machine, partial(ThreadPoolExecutor, _AT_ONCE), _say)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The state is the record, and what follows is the checkpoint for the agent.
    if "BEDPLATE_RESUME" in os.environ:
        Path(os.environ["BEDPLATE_RESUMED"]).touch()
    try:
        if other := _other_driver(hub, name):
            _say(f"error: {other} is the driver of {name}, or its end is not recorded yet")
            return _FAILED
        driver.start()
        _keep(driver)
        while driver.step():
            _keep(driver)
            # A run that prints nothing counts as idle.
            if time.monotonic() - _said[0] > _SIGN:
                _say(driver.progress)
            time.sleep(min(max(_PAUSE, _SHARE * driver.age), _LONGEST_PAUSE))
    except BpError as error:
        if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise
        _say(f"error: {error}")
        return _FAILED
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if machine.is_made_again():
            return _STOPPED
        driver.stop(STOP)
        _say(f"{name} is stopped: `bp search FILE` goes on with it")
        return _STOPPED
    for line in driver.summary():
        _say(line)
    return 0 if driver.best else FINAL


def _other_driver(hub: StudyHub, name: str) -> str:
    """Return another run that drives the study; note that this one does.

    Each driver is in the record before it looks, so of two at least one sees the other.
    """
    runs = {run["run"]: run for run in tagged_runs(hub, is_running=True, search=name)}
    own = os.environ["MLFLOW_RUN_ID"]
    if "bedplate.drives" not in runs.get(own, {}).get("tags", {}):
        for run in runs.values():
            if run["run"] != own and not has_run_ended(run):
                return str(run["name"])
        change_run(hub, own, tags={"bedplate.drives": "1"})
    return ""


def _keep(driver: Driver) -> None:
    """Write a checkpoint if a trial has ended: without one, the agent ends a driver that fails again and again."""
    path, text = Path(os.environ["BEDPLATE_CHECKPOINTS"], "ended"), str(driver.ended)
    # The state is the record: a full disk ends no search.
    with suppress(OSError):
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _say(line: str) -> None:
    _said[0] = time.monotonic()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path()))
