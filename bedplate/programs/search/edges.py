"""What a driver reaches: the record by the hub with a token of the study, and the machine by its agent."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from ..bp import records
from ..bp.hub import BpError
from ..connection import PATIENCE, Connection
from ..program import run as run_program
from ..study import command_of, is_trial

Run = Mapping[str, Any]
Params = Mapping[str, str]
# Seconds for which a request waits for the hub.
_FOREVER = 60 * 86_400.0
_HISTORY, _RUNS, _MOST_VALUES = "/ajax-api/2.0/mlflow/metrics/get-history-bulk", 10, 25_000


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

    def __init__(self, hub: StudyHub, facts: Mapping[str, Any]) -> None:
        self._hub, self._name, self._facts = hub, facts["name"], facts
        self._metric = facts["settings"]["study"]["metric"]

    @property
    def now(self) -> float:
        """The hub's clock."""
        return self._hub.now

    def all(self) -> Sequence[Run]:
        """Return all trials in their order."""
        runs = [run for run in records.tagged_runs(self._hub, study=self._name) if is_trial(run, self._name)]
        return sorted(runs, key=lambda run: str(run["name"]))

    def look(self, known: Mapping[int, Run]) -> Mapping[int, Run]:
        """Return the newest records of these trials."""
        running = {run["run"]: run for run in records.tagged_runs(self._hub, is_running=True, study=self._name)}
        find = records.find_run
        newest = {at: running.get(run["run"]) or find(self._hub, run["run"]) for at, run in known.items()}
        # By its name a trial is stopped, and colleagues can change that.
        return {at: {**run, "name": known[at]["name"]} for at, run in newest.items()}

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

    def __init__(self, hub: StudyHub, facts: Mapping[str, Any]) -> None:
        self._hub, self._name, self._facts = hub, facts["name"], facts

    def start(self, run: Run, params: Params, seconds: float) -> str:
        """Start a trial for at most so many seconds, once, however often that is asked for; return an error."""
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

    def stop(self, run: Run, reason: str) -> str:
        """Let a trial end, with its time for a checkpoint; the cause in its record has the reason. Return an error."""
        return run_program("bedplate-agent", "stop", run["name"], "--by", f"{self._name}: {reason}").error
