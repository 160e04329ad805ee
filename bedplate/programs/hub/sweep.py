"""The records of runs that nobody will hear of again get their end.

A timer runs `bedplate-hub sweep` every minute.
"""

import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import Any

SOCKET = "/run/mlflow/socket"
"""Where MLflow listens."""
_EXPERIMENT, _TAG = "jobs", "bedplate."
# Seconds: an agent reports every minute. A machine that EC2 does not have cannot come back; others may be cut off. The
# agent of a pod that was cut off takes its end back. Code may be sent for hours.
_SILENT, _UNREACHED, _UNSTARTED, _FRESH = 900, 7 * 86_400, 86_400, 600
# While nobody reports, the way to the hub may be cut for all.
_CUT = 86_400
_PAGE = 200
Run = Mapping[str, Any]


class Record:
    """MLflow's runs of the experiment `jobs`. Methods raise OSError, HTTPException, ValueError and LookupError."""

    def __init__(self, path: str = SOCKET, seconds: float = 60) -> None:
        self.path, self._seconds = path, seconds

    def _call(self, method: str, path: str, **values: object) -> Any:  # noqa: ANN401  a document of any kind
        with closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(self._seconds)
            connection.sock.connect(self.path)
            body = json.dumps(values) if values else None
            connection.request(method, f"/api/2.0/mlflow/{path}", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"{path}: status {response.status}: {answer[:300]!r}")
        return json.loads(answer)

    def search(self, condition: str) -> Iterator[Run]:
        """Yield the runs of a condition with their tags; times are seconds."""
        found = self._call("GET", f"experiments/get-by-name?experiment_name={_EXPERIMENT}")
        experiments, page = [found["experiment"]["experiment_id"]], dict[str, object]()
        while True:
            query = {"experiment_ids": experiments, "filter": condition, "max_results": _PAGE, **page}
            answer = self._call("POST", "runs/search", **query)
            for run in answer.get("runs", ()):
                info = run["info"]
                start, end = (int(info.get(name) or 0) / 1000 for name in ("start_time", "end_time"))
                names = {"run": info["run_id"], "name": info.get("run_name", ""), "status": info["status"]}
                yield {**_tags_of(run), **names, "start": start, "end": end}
            page = {"page_token": answer.get("next_page_token")}
            if not page["page_token"]:
                return

    def tags(self, run: str) -> Mapping[str, str]:
        """Return the tags of bedplate of a run, by its id."""
        return _tags_of(self._call("GET", f"runs/get?run_id={run}")["run"])

    def set_tags(self, run: Run, **tags: str) -> None:
        """Write tags of a run."""
        rows = [{"key": _TAG + key, "value": value} for key, value in tags.items()]
        self._call("POST", "runs/log-batch", run_id=run["run"], tags=rows)

    def end(self, run: Run, cause: str) -> None:
        """Write the end of a run, at the moment of its last sign of life."""
        self.set_tags(run, state="ended", cause=cause)
        self._call("POST", "runs/update", run_id=run["run"], status="FAILED", end_time=int(_last_sign(run) * 1000))


def _tags_of(run: Any) -> Mapping[str, str]:  # noqa: ANN401  a document of MLflow
    tags = run["data"].get("tags", ())
    return {tag["key"].removeprefix(_TAG): str(tag["value"]) for tag in tags if tag["key"].startswith(_TAG)}


def _last_sign(run: Run) -> float:
    seen = str(run.get("seen", ""))
    return int(seen) / 1000 if seen.isdecimal() else float(run["start"])


def lost_cause(run: Run, fleet: Mapping[str, Any], now: float, since: float = 0.0, heard: float = inf) -> str:
    """Return why nobody will hear of a run again; empty if somebody may.

    The machines of fleet.json count only if it is of now, and complete. `since`: when MLflow started; `heard`: when the
    last run reported.
    """
    machine, silent = str(run.get("machine", "")), now - _last_sign(run)
    if "state" not in run:
        # MLflow's clients make runs, too, such as in notebooks.
        return ""
    if run["state"] == "sent":
        return "it was never started" if silent > _UNSTARTED else ""
    is_known = not fleet.get("faults") and (fleet.get("time") or 0) > now - _FRESH
    if machine and is_known and machine not in fleet["machines"] and silent > _SILENT:
        return f"its machine {machine} has ended"
    if "image" in run and "seen" in run and min(silent, now - since) > (_CUT if now - heard > _SILENT else _SILENT):
        return f"its pod was silent for {_SILENT // 60} minutes: it was deleted or evicted, or its node is lost"
    return f"nothing was heard of it for {_UNREACHED // 86_400} days" if silent > _UNREACHED else ""


def sweep(record: Record, fleet: Mapping[str, Any], now: float) -> None:
    """End the records of lost runs. Their tokens stay: an agent that was only cut off writes its own end."""
    since = Path(record.path).stat().st_mtime
    # Pages of a search would move while runs end.
    runs = [*record.search("attributes.status = 'RUNNING'")]
    heard = 0.0
    for run in runs:
        with suppress(ArithmeticError, ValueError):
            heard = max(heard, _last_sign(run))
    for run in runs:
        try:
            if cause := lost_cause(run, fleet, now, since, heard):
                record.end(run, cause)
        except (OSError, http.client.HTTPException, ValueError, LookupError, ArithmeticError) as error:
            # Colleagues can write the tags of a run. The others have their ends nevertheless.
            sys.stderr.write(f"<3>{run['run']}: {error}\n")


def main(volume: Path) -> None:
    """Sweep once."""
    file = volume / "public/fleet.json"
    fleet = json.loads(file.read_text()) if file.exists() else {"faults": ["fleet.json is missing"]}
    sweep(Record(), fleet, time.time())
