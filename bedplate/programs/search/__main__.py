"""The driver as a program: the record by the hub with a token of the study, and the machine by its agent."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..bp import records
from ..bp.hub import BpError
from ..connection import PATIENCE, Connection
from ..program import run as run_program
from ..study import STOP, command_of, number_of
from .driver import Driver, Run
from .optimizer import Params

# Seconds: for a request while the hub is away, the least and the longest pause between two looks, and their share of
# the age of the youngest trial.
_FOREVER, _PAUSE, _LONGEST_PAUSE, _SHARE = 60 * 86_400.0, 2.0, 30.0, 0.02
_HISTORY, _RUNS, _MOST_VALUES = "/ajax-api/2.0/mlflow/metrics/get-history-bulk", 10, 25_000
_OVER, _FAILED, _STOPPED = 0, 1, 143


class StudyHub(Connection):
    """The hub for a token of the study, which waits while the hub is away."""

    def __init__(self, facts: Mapping[str, Any], token: str) -> None:
        super().__init__(facts["hub"], facts["certificate"], lambda _: token, facts["address"])

    def failure(self, what: str, reason: str, status: int = 0) -> BpError:
        """Return the exception of a failure, as `records` needs it."""
        del reason
        return BpError(what, status=status)

    def call(self, path: str, body: object = None, patience: float = PATIENCE, method: str = "") -> Any:  # noqa: ANN401
        """Return the JSON of an answer."""
        return super().call(path, body, _FOREVER if patience == PATIENCE else patience, method)


class StudyRecord:
    """The trials in MLflow. Methods raise BpError if the hub refuses them."""

    def __init__(self, hub: StudyHub, name: str, metric: str, facts: Mapping[str, Any]) -> None:
        self._hub, self._name, self._metric, self._facts = hub, name, metric, facts

    @property
    def now(self) -> float:
        """The hub's clock."""
        return self._hub.now

    def all(self) -> Sequence[Run]:
        """Return all trials in their order."""
        runs = records.tagged_runs(self._hub, study=self._name)
        return sorted(runs, key=lambda run: number_of(run["name"]))

    def look(self, known: Mapping[int, Run]) -> Mapping[int, Run]:
        """Return the newest records of these trials."""
        running = {run["run"]: run for run in records.tagged_runs(self._hub, is_running=True, study=self._name)}
        find = records.find_run
        return {at: running.get(run["run"]) or find(self._hub, run["run"]) for at, run in known.items()}

    def values(self, runs: Sequence[Run]) -> Mapping[str, Mapping[int, float]]:
        """Return the values of the metric by their step, the newest of each, for each run by its id."""
        values = dict[str, dict[int, float]]()
        ids = [run["run"] for run in runs if self._metric in run["metrics"]]
        for at in range(0, len(ids), _RUNS):
            query = [("run_id", run) for run in ids[at : at + _RUNS]]
            query += [("metric_key", self._metric), ("max_results", str(_MOST_VALUES))]
            found = self._hub.call(f"{_HISTORY}?{urlencode(query)}").get("metrics", ())
            for item in sorted(found, key=lambda item: int(item.get("timestamp", 0))):
                values.setdefault(item["run_id"], {})[int(item.get("step", 0))] = float(item.get("value", 0))
        return values

    def create(self, number: int, params: Params) -> Run:
        """Return the record of a trial, which is made if it is missing."""
        name, facts = f"{self._name}-{number:04}", self._facts["tags"]
        command = shlex.join(command_of(self._facts["document"]["command"], params))
        tags = {**facts, "command": command, "trial": json.dumps(params), "given": " ".join(params)}
        return records.create_trial(self._hub, name, tags, os.environ.get("MLFLOW_RUN_ID", ""))

    def end(self, run: Run, cause: str) -> None:
        """End the record of a trial that did not start."""
        records.end_run(self._hub, run["run"], cause)


class StudyMachine:
    """The machine of the driver, by its agent."""

    def __init__(self, hub: StudyHub, facts: Mapping[str, Any], name: str) -> None:
        self._hub, self._facts, self._name = hub, facts, name

    def start(self, run: Run, params: Params, seconds: float) -> str:
        """Start a trial, once; return why it cannot start, else nothing."""
        given = self._facts["document"]
        try:
            records.change_run(self._hub, run["run"], params=params)
            token = self._hub.call("/bedplate/token", {"scope": f"run:{run['run']}"})["token"]
        except BpError as error:
            return str(error)
        name = run["name"]
        own = {"id": name, "run": run["run"], "experiment": run["experiment"], "token": token, "for": int(seconds)}
        own |= {"command": command_of(given["command"], params), "params": params}
        own |= {"checkpoints": given["checkpoints"] and f"{given['checkpoints']}/{name}"}
        own |= {"secrets": {variable: os.environ[variable] for variable in self._facts["secrets"]}}
        # A machine that is busy may have started it.
        while (started := run_program("bedplate-agent", "start", data=json.dumps({**given, **own}).encode())).is_late:
            pass
        return started.error

    def stop(self, run: Run, reason: str) -> None:
        """Let a trial end: the cause in its record is by whom, and this reason."""
        done = run_program("bedplate-agent", "stop", run["name"], "--by", f"{self._name}: {reason}")
        if done.error:
            _say(done.error)


def main(folder: Path) -> int:
    """Run the search of a folder; return the exit code."""
    facts = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    name, settings = facts["name"], facts["settings"]
    # Trials have the Python of the machine, or an environment of their own.
    own = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(path for path in os.environ["PATH"].split(os.pathsep) if path != own)
    hub = StudyHub(facts["document"], os.environ["STUDY_TOKEN"])
    record = StudyRecord(hub, name, settings["study"]["metric"], facts)
    driver = Driver(facts, record, StudyMachine(hub, facts, name), _say)
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
            time.sleep(min(max(_PAUSE, _SHARE * driver.age), _LONGEST_PAUSE))
    except BpError as error:
        if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise
        _say(f"error: {error}")
        return _FAILED
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        driver.stop(STOP)
        _say(f"{name} is stopped: `bp search FILE` goes on with it")
        return _STOPPED
    for line in driver.summary():
        _say(line)
    return _OVER if driver.has_result else _FAILED


def _other_driver(hub: StudyHub, name: str) -> str:
    """Return another run that drives the study; note that this one does.

    Each driver is in the record before it looks, so of two at least one sees the other.
    """
    runs = {run["run"]: run for run in records.tagged_runs(hub, is_running=True, search=name)}
    own = os.environ["MLFLOW_RUN_ID"]
    if "bedplate.drives" not in runs.get(own, {}).get("tags", {}):
        for run in runs.values():
            if run["run"] != own and not records.has_run_ended(run):
                return str(run["name"])
        records.change_run(hub, own, tags={"bedplate.drives": "1"})
    return ""


def _keep(driver: Driver) -> None:
    """Write a checkpoint if a trial has ended: without one, the agent ends a driver that fails again and again."""
    path, text = Path(os.environ["BEDPLATE_CHECKPOINTS"], "ended"), str(driver.ended)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path()))
