"""What a driver reaches: the record by the hub with a token of the study, and the machine by its agent."""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..bp import records
from ..bp.cluster import Api
from ..bp.hub import BpError
from ..bp.jobset import Cluster, agent_of, jobset_of, secret_of
from ..bp.places import Place
from ..bp.pods import NotRunningError, Record, is_over, never_ran, stop_pods, wait_reason
from ..connection import PATIENCE, Connection
from ..program import run as run_program
from ..study import command_of

Run = Mapping[str, Any]
Params = Mapping[str, str]
FULL = "exceeded quota"
"""What an error has if a trial may start later. Source: Kubernetes' plugin/pkg/admission/resourcequota, 1.36."""
# Seconds for which a request waits for the hub.
_FOREVER = 60 * 86_400.0
# Prints the token of the pod's account, which kubelet replaces in time, as `Api` reads one; the shell needs no program.
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_PRINT = f'read -r word <{_ACCOUNT}/token; printf \'{{"status": {{"token": "%s"}}}}\' "$word"'
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
        return records.trials_of(self._hub, self._name)

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


class StudyApi(Api):
    """The API of the cluster for the account of a driver in a pod, which waits while the API is away."""

    def call(self, path: str, body: object = None, patience: float = PATIENCE, method: str = "") -> Any:  # noqa: ANN401
        """Return the JSON of an answer."""
        return super().call(path, body, _FOREVER if patience == PATIENCE else patience, method)


class StudyMachine:
    """The machine of the driver, by its agent."""

    def __init__(self, hub: StudyHub, facts: Mapping[str, Any]) -> None:
        self._hub, self._name, self._facts = hub, facts["name"], facts

    def start(self, run: Run, params: Params, seconds: float) -> str:
        """Start a trial for at most so many seconds, once, however often that is asked for; return an error."""
        try:
            records.change_run(self._hub, run["run"], params=params)
            token = self._hub.call("/bedplate/token", {"scope": f"run:{run['run']}"})["token"]
            return self._launch(self._document(run, params, seconds, token))
        except BpError as error:
            return str(error)

    def _document(self, run: Run, params: Params, seconds: float, token: str) -> Mapping[str, Any]:
        given, name = self._facts["document"], run["name"]
        own = {"id": name, "run": run["run"], "experiment": run["experiment"], "token": token, "for": int(seconds)}
        own |= {"command": command_of(given["command"], params), "params": params}
        own |= {"checkpoints": given["checkpoints"] and f"{given['checkpoints']}/{name}"}
        own |= {"secrets": {variable: os.environ[variable] for variable in self._facts["secrets"]}}
        return {**given, **own}

    def _launch(self, document: Mapping[str, Any]) -> str:
        # A machine that is busy may have started it.
        while (started := run_program("bedplate-agent", "start", data=json.dumps(document).encode())).is_late:
            pass
        return started.error

    def check(self, runs: Iterable[Run]) -> None:
        """Do nothing: agents of a machine write the end of a run also if it was killed."""

    def is_made_again(self) -> bool:
        """Return whether the driver ends for another one: that of a machine ends with its trials."""
        return False

    def stop(self, run: Run, reason: str) -> str:
        """Let a trial end, with its time for a checkpoint; the cause in its record has the reason. Return an error."""
        return run_program("bedplate-agent", "stop", run["name"], "--by", f"{self._name}: {reason}").error


class StudyCluster(StudyMachine):
    """The cluster of the driver, by the account of its pod: trials are JobSets."""

    def __init__(self, hub: StudyHub, facts: Mapping[str, Any]) -> None:
        super().__init__(hub, facts)
        host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
        self._api = StudyApi(Cluster(**{**facts["cluster"], "server": f"https://{host}:{port}", "token": _PRINT}))
        self._place, self._agent = Place(**facts["place"]), agent_of(Path(sys.argv[0]))

    def _launch(self, document: Mapping[str, Any]) -> str:
        given = {**document, "study": self._name}
        jobset = jobset_of(given, self._place, self._api.cluster, self._facts["claims"])
        # A former driver may have made it, which a full quota would not say.
        found = self._api.jobset(document["id"])
        self._api.start(jobset, lambda uid: secret_of(given, self._agent, uid), found)
        return ""

    def check(self, runs: Iterable[Run]) -> None:
        """End the records of trials that never start, or have ended without a word of their agents."""
        jobsets, pods = self._api.trials(self._name)
        for run in runs:
            name, record = run["name"], Record(self._hub, run["run"])
            jobset, pod = jobsets.get(name, {}), pods.get(name, {})
            try:
                if is_over(jobset):
                    record.end(never_ran(jobset, pod))
                elif pod:
                    wait_reason(pod)
            except NotRunningError as error:
                record.end(str(error))
                self._api.end(name, now=False)

    def is_made_again(self) -> bool:
        """Return whether the pod is deleted, such as by a drain, and nobody has stopped the search."""
        run = records.find_run(self._hub, os.environ["MLFLOW_RUN_ID"])
        pods = (pod["metadata"] for pod in self._api.pods(run["name"]))
        is_deleted = all("deletionTimestamp" in facts for facts in pods if facts["name"] == os.environ["POD"])
        return is_deleted and "bedplate.stopped_by" not in run["tags"]

    def stop(self, run: Run, reason: str) -> str:
        """Let a trial end, as on a machine. Return an error."""
        try:
            stop_pods(self._hub, self._api, run, f"{self._name}: {reason}")
        except BpError as error:
            return str(error)
        return ""
