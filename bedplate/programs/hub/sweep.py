"""The records of runs that nobody will hear of again get their end.

A timer runs `bedplate-hub sweep` every minute.
"""

import http.client
import json
import re
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import Any

from ..elements import ENDS, codes_of, elements_of, end_of
from .records import Lines
from .tokens import LONGEST

SOCKET = "/run/mlflow/socket"
"""Where MLflow listens."""
_EXPERIMENT, _TAG = "jobs", "bedplate."
# Seconds: an agent reports every minute. A machine that EC2 does not have cannot come back; others may be cut off. The
# agent of a pod that was cut off takes its end back. Code may be sent for hours.
_SILENT, _UNREACHED, _UNSTARTED, _FRESH = 900, 7 * 86_400, 86_400, 600
# While nobody reports, the way to the hub may be cut for all.
_CUT = 86_400
_PAGE = 200
_ID = re.compile("[a-z_][a-z0-9_-]{0,199}")
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

    def end(self, run: Run, cause: str, status: str = "FAILED") -> None:
        """Write the end of a run, at the moment of its last sign of life."""
        self.set_tags(run, state="ended", cause=cause)
        self._call("POST", "runs/update", run_id=run["run"], status=status, end_time=int(_last_sign(run) * 1000))


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
    is_queued = run["state"] == "queued"
    if is_queued and now - run["start"] > LONGEST:
        return f"it was queued for {LONGEST // 86_400} days, and its token has expired"
    is_known = not fleet.get("faults") and (fleet.get("time") or 0) > now - _FRESH
    if machine and is_known and machine not in fleet["machines"] and silent > _SILENT:
        return f"its machine {machine} has ended"
    # Nobody reports for a run in a queue. Elements of an array may wait for a machine between two others.
    patience = _CUT if now - heard > _SILENT or "array" in run else _SILENT
    if is_queued:
        return ""
    if {"image", "in"} & run.keys() and "seen" in run and min(silent, now - since) > patience:
        place = "session" if "in" in run else "pod"
        return f"its {place} was silent for {_SILENT // 60} minutes: it was deleted or evicted, or its node is lost"
    return f"nothing was heard of it for {_UNREACHED // 86_400} days" if silent > _UNREACHED else ""


def after_cause(record: Record, run: Run, going_on: Collection[str]) -> str:
    """Return why a run that waits for another one never starts; empty if it may. `going_on` are ids of runs."""
    name, _, condition = str(run.get("after", "")).partition(":")
    waits = condition == "ok" and run.get("state") == "queued" and "seen" not in run
    if not waits or name in going_on or not _ID.fullmatch(name):
        return ""
    states = [former["status"] for former in record.search(f"tags.`{_TAG}id` = '{name}'")]
    end = ENDS.get(states[0], "") if states else "is in no record"
    return f"it did not run: {name} {end}" if end else ""


def array_end(run: Run) -> tuple[str, str]:
    """Return the status and the cause of an array in the cluster whose elements have all ended; empty before."""
    elements, codes = elements_of(run["array"]) if "array" in run else (), codes_of(run)
    if not elements or "image" not in run or {*elements} - codes.keys():
        return "", ""
    code, cause = end_of(elements, codes)
    return "FAILED" if code else "FINISHED", cause


def sweep(record: Record, fleet: Mapping[str, Any], now: float, removed: Collection[str] = ()) -> Sequence[Run]:
    """End the records of lost runs, and of those whose person was `removed`; return the others.

    Tokens of lost runs stay: an agent that was only cut off writes its own end.
    """
    since = Path(record.path).stat().st_mtime
    # Pages of a search would move while runs end.
    runs = [*record.search("attributes.status = 'RUNNING'")]
    heard = 0.0
    for run in runs:
        with suppress(ArithmeticError, ValueError):
            heard = max(heard, _last_sign(run))
    ids, known, left = {str(run.get("id")) for run in runs}, {run["run"] for run in runs}, list[Run]()
    for run in runs:
        try:
            cause = "its person was removed from the fleet" if run["run"] in removed else ""
            cause = cause or lost_cause(run, fleet, now, since, heard) or after_cause(record, run, ids)
            if "parent" in run and run["parent"] not in known:
                cause = "its array has ended"
            # The last agent of an array may be lost before it has written its end.
            status, cause = ("FAILED", cause) if cause else array_end(run)
            if cause:
                record.end(run, cause, status)
            else:
                left.append(run)
        except (OSError, http.client.HTTPException, ValueError, LookupError, ArithmeticError) as error:
            # Colleagues can write the tags of a run. The others have their ends nevertheless.
            sys.stderr.write(f"<3>{run['run']}: {error}\n")
    return left


def main(volume: Path, people: Path) -> Sequence[Run]:
    """Sweep once; return the runs that go on. Whoever first asked for the token of a run owns it."""
    names, gone, owners = (Lines(path).read() for path in (people, volume / "tokens/removed", volume / "tokens/runs"))
    # An empty list of people is a fault, and no reason to end all runs.
    removed = {run for run, uid in owners.items() if names and (uid not in names or uid in gone)}
    file = volume / "public/fleet.json"
    fleet = json.loads(file.read_text()) if file.exists() else {"faults": ["fleet.json is missing"]}
    return sweep(Record(), fleet, time.time(), removed)
