"""The records of runs, as MLflow has them: the newest of a person or of all, and one with all that is known."""

import csv
import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from http import HTTPStatus
from io import StringIO
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from ..connection import Connection
from ..elements import progress
from .hub import HELD, WRONG, BpError, Hub, printable

_API, _EXPERIMENT, _TAG = "/api/2.0/mlflow/", "jobs", "bedplate."
_MLFLOW_ID, _NAME = re.compile("[0-9a-f]{32}"), re.compile("[A-Za-z0-9_.-]{1,200}")
_NOT_FOUND, _WIDTH, _UNKNOWN = 404, 60, "unknown"
_GOING_ON = frozenset({"RUNNING", "SCHEDULED"})
_ENDED = {name.lower(): name for name in ("FINISHED", "FAILED", "KILLED")}
STATES = {**dict.fromkeys(("sent", "queued", "running"), "RUNNING"), **_ENDED}
"""What `bp runs` shows as the state of a run, and MLflow's status then."""
_PARTS = ("tags", "params", "metrics")
# Milliseconds: an agent reports every minute.
_SILENT = 180_000
_LONGEST, _TRIES, _PAUSE = 5_000, 6, 0.5
# Runs of a study, with those that were stopped.
_MOST = 5_000
_ADJECTIVES = "amber bold brave bright calm clear cool eager fair fast fine gentle golden happy keen kind light neat"
_ANIMALS = "badger bat bear beaver bee bison camel cat crab crane crow deer dove eagle elk falcon fox goose hare hawk"
# The tags that `show` has for every run.
_SHOWN = ("id", "owner", "command", "group", "machine", "gpus", "nodes", "image", "tree", "cause")
_COMPARED = ("command", "image", "group", "machine", "gpus", "cpus", "memory", "env")
_LONGEST_PATH, _OF_ELEMENT = 900, re.compile(r"bedplate\.(exit|cause|ran)\.")
OUTPUT = "output"
"""The folder of a run's files that has what its program has left."""


@contextmanager
def _answers_of_mlflow() -> Iterator[None]:
    """Raise BpError for a document that has not what MLflow's have."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError):
        raise BpError("the hub's answer is not that of MLflow", "ask your operator") from None


@_answers_of_mlflow()
def newest_runs(hub: Hub, wanted: Mapping[str, Any], count: int) -> Sequence[Mapping[str, Any]]:
    """Return the newest runs that `owner`, `group`, `state`, `text` and `archived` do not leave out. Raises BpError."""
    status, text = STATES.get(wanted.get("state", ""), ""), _pattern(wanted.get("text", ""))
    names = ("owner", "group", *(["state"] if status == "RUNNING" else []))
    conditions = [_tagged(name, wanted[name]) for name in names if wanted.get(name)]
    conditions += [f"attributes.status = '{status}'"] if status else []
    # Elements of arrays have records of their own, and `bp search show` lists trials.
    conditions += [f"tags.`{_TAG}parent` IS NULL", f"tags.`{_TAG}study` IS NULL"]
    conditions += [] if wanted.get("archived") else [f"tags.`{_TAG}archived` IS NULL"]
    places = ("attributes.run_name", f"tags.`{_TAG}command`", f"tags.`{_TAG}cause`")
    # Filters of MLflow have no OR.
    texts = [[f"{place} ILIKE '%{text}%'"] for place in places] if text else [[]]
    with ThreadPoolExecutor(len(texts)) as pool:
        pages = pool.map(lambda found: _search(hub, " AND ".join(conditions + found), count), texts)
        runs = {run["run"]: run for page in pages for run in page}
    return sorted(runs.values(), key=lambda run: run["start_time"] or 0, reverse=True)[:count]


def _pattern(text: str) -> str:
    """Return a text for LIKE that cannot end its place in a filter, and stands for nothing but itself."""
    if not text.isprintable() or {*text} & {*"'\"`\\"}:
        raise BpError(f"cannot search for {text!r}", "write a part of it without quotes and backslashes", WRONG)
    return re.sub("[%_]", r"\\\g<0>", text)


def _tagged(name: str, value: str) -> str:
    return f"tags.`{_TAG}{name}` = '{_checked(value)}'"


@_answers_of_mlflow()
def create_run(hub: Hub, word: str, tags: Mapping[str, object], params: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a new run with its experiment; its name ends with a word, or else with an adjective and an animal."""
    experiment, person = _experiment(hub), hub.settings.person
    # The clock of the hub, which has just answered, orders and names runs.
    start, day = int(hub.now * 1000), time.strftime("%m%d", time.gmtime(hub.now))
    name = ""
    for attempt in range(_TRIES):
        chosen = "-".join(secrets.choice(words.split()) for words in (_ADJECTIVES, _ANIMALS))
        # Where many are in use, a number tells the others apart.
        chosen += f"-{secrets.randbelow(9_000) + 1_000}" if attempt else ""
        name = name or f"{person}-{day}-{word or chosen}"
        found = _search(hub, _tagged("id", name), 1)
        if found and found[0]["start_time"] != start:
            if word:
                raise BpError(f"a run is named {name}", "select another --name", WRONG)
            name = ""
            continue
        known = {"schema": 1, "id": name, "owner": person, "state": "sent", **tags}
        values = {"mlflow.user": person, **{f"{_TAG}{key}": value for key, value in known.items()}}
        body = {"experiment_id": experiment, "start_time": start, "run_name": name, "tags": _pairs(values)}
        try:
            # The answer to a former try may be lost.
            run = found[0] if found else _run(hub.call(f"{_API}runs/create", body, 0)["run"])
        except BpError as error:
            if 0 < error.status < HTTPStatus.INTERNAL_SERVER_ERROR or attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE * attempt)
        else:
            change_run(hub, run["run"], params=params)
            return {**run, "experiment": experiment}
    raise BpError(f"{_TRIES} new names were all in use", "write the command again: it tries others", HELD)


@_answers_of_mlflow()
def create_trial(hub: Connection, name: str, tags: Mapping[str, object], parent: str) -> Mapping[str, Any]:
    """Return the run with a name, which is made if it is missing; MLflow shows it below its parent."""
    values = {"mlflow.parentRunId": parent, "mlflow.user": tags["owner"]}
    values |= {f"{_TAG}{key}": value for key, value in {"schema": 1, "id": name, "state": "sent", **tags}.items()}
    pause = 0.0
    while not (found := _search(hub, _tagged("id", name), 1)):
        time.sleep(pause)
        pause = min(pause + _PAUSE, 10 * _PAUSE)
        body = {"experiment_id": _experiment(hub), "start_time": int(hub.now * 1000), "run_name": name}
        try:
            # The answer may be lost: then the search finds the run.
            hub.call(f"{_API}runs/create", {**body, "tags": _pairs(values)}, 0)
        except BpError as error:
            if error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
    return found[0]


@_answers_of_mlflow()
def tagged_runs(hub: Connection, *, is_running: bool = False, **tags: str) -> Sequence[Mapping[str, Any]]:
    """Return the runs with these tags of bp, the newest first."""
    conditions = [_tagged(name, value) for name, value in tags.items()]
    conditions += ["attributes.status = 'RUNNING'"] if is_running else []
    return _search(hub, " AND ".join(conditions), _MOST)


def trials_of(hub: Connection, study: str) -> Sequence[Mapping[str, Any]]:
    """Return the trials of a study in their order, by their names and ids: colleagues can write other records."""
    pattern = re.compile(f"{re.escape(study)}-[0-9]{{4}}")

    def is_trial(run: Mapping[str, Any]) -> bool:
        names = run["name"], run["tags"].get(f"{_TAG}id", "")
        return all(pattern.fullmatch(str(name)) for name in names)

    return sorted(filter(is_trial, tagged_runs(hub, study=study)), key=lambda run: str(run["name"]))


def change_run(hub: Connection, run: str, **parts: Mapping[str, object]) -> None:
    """Add `tags` and `params` to a run. Raises BpError."""
    if any(parts.values()):
        lists = {part: _pairs(values) for part, values in parts.items()}
        hub.call(f"{_API}runs/log-batch", {"run_id": run, **lists})


def end_run(hub: Connection, run: str, cause: str, status: str = "FAILED") -> None:
    """Write the end of a run whose agent has not: it did not start, or was killed. Raises BpError."""
    if has_run_ended(find_run(hub, run)):
        return
    change_run(hub, run, tags={f"{_TAG}state": "ended", f"{_TAG}cause": cause})
    hub.call(f"{_API}runs/update", {"run_id": run, "status": status, "end_time": int(hub.now * 1000)})


@_answers_of_mlflow()
def stored_names(hub: Connection, run: str, folder: str) -> "Mapping[str, int | None]":
    """Return the names in a folder of a run's files, in their order, with their bytes. Raises BpError."""
    query = urlencode({"run_id": run, "path": folder})
    files = hub.call(f"{_API}artifacts/list?{query}").get("files", ())
    sizes = {str(file["path"]).rpartition("/")[2]: file for file in files}
    if len(folder) > _LONGEST_PATH or not all(name not in {"", ".", ".."} and name.isprintable() for name in sizes):
        raise ValueError
    return {name: None if sizes[name].get("is_dir") else int(sizes[name].get("file_size", 0)) for name in sorted(sizes)}


def output_files(hub: Connection, run: Mapping[str, Any], folder: str = "") -> Mapping[str, int]:
    """Return the files that a run has left, by their path in its output, with their bytes. Raises BpError."""
    files: dict[str, int] = {}
    for name, size in stored_names(hub, run["run"], OUTPUT + folder).items():
        files.update(output_files(hub, run, f"{folder}/{name}") if size is None else {f"{folder}/{name}"[1:]: size})
    return files


def file_lines(files: Mapping[str, int]) -> Iterator[str]:
    """Yield the size and the path of each file, and their sum."""
    sizes = {**files, f"{len(files)} files": sum(files.values())}
    yield from table([(f"{size:,}", name) for name, size in sizes.items()])


def _pairs(values: Mapping[str, object]) -> Sequence[Mapping[str, str]]:
    """Return values as MLflow takes them: none is empty or too long."""
    texts = {key: str("" if value is None else value).encode(errors="replace") for key, value in values.items()}
    return [{"key": key, "value": text[:_LONGEST].decode(errors="ignore")} for key, text in texts.items() if text]


@_answers_of_mlflow()
def find_run(hub: Connection, word: str) -> Mapping[str, Any]:
    """Return the run with this name or id, of bp or of MLflow. Raises BpError if there is none, or several."""
    if _MLFLOW_ID.fullmatch(word):
        try:
            return _run(hub.call(f"{_API}runs/get?run_id={word}")["run"])
        except BpError as error:
            if error.status != _NOT_FOUND:
                raise
    runs: Sequence[Mapping[str, Any]] = ()
    for condition in (f"attributes.run_name = '{_checked(word)}'", _tagged("id", word)):
        runs = runs or _search(hub, condition, 5)
    if not runs:
        raise BpError(f"no run is named {word}", "`bp runs --all` lists the newest", WRONG)
    if len(runs) > 1:
        raise BpError(f"several runs are named {word}", f"write one of {', '.join(run['run'] for run in runs)}", WRONG)
    return runs[0]


def _checked(word: str) -> str:
    """Return a word that cannot end its place in a filter of MLflow."""
    if not _NAME.fullmatch(word):
        raise BpError(f"{word!r} is not a name", "use letters, digits, `_`, `.` and `-`", WRONG)
    return word


# A command searches several times.
@cache
def _experiment(hub: Connection) -> str:
    found = hub.call(f"{_API}experiments/get-by-name?experiment_name={_EXPERIMENT}")
    return str(found["experiment"]["experiment_id"])


def _search(hub: Connection, condition: str, count: int) -> Sequence[Mapping[str, Any]]:
    body = {"experiment_ids": [_experiment(hub)], "filter": condition, "max_results": count}
    # MLflow leaves out what is empty.
    body["order_by"] = ["attributes.start_time DESC"]
    runs = hub.call(f"{_API}runs/search", body).get("runs", ())
    return [_run(run) for run in runs]


def _run(run: Any) -> Mapping[str, Any]:  # noqa: ANN401  of any kind
    """Return a run of MLflow in the form of `--json`; times are milliseconds."""
    info, data = run["info"], run["data"]
    return {
        "run": str(info["run_id"]),
        "name": str(info.get("run_name", "")),
        "experiment": str(info.get("experiment_id", "")),
        "status": str(info["status"]),
        "start_time": int(info.get("start_time") or 0) or None,
        # MLflow keeps the end of a run that was counted as lost, and reports again.
        "end_time": None if info["status"] in _GOING_ON else int(info.get("end_time") or 0) or None,
        **{part: {str(item["key"]): item["value"] for item in data.get(part, ())} for part in _PARTS},
    }


def run_lines(runs: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    """Yield a table of runs; `now` is the hub's clock."""
    rows: list[Sequence[str]] = [("RUN", "OWNER", "STATE", "STARTED", "TIME", "MACHINE", "COMMAND")]
    for run in runs:
        owner, machine, command = (str(run["tags"].get(_TAG + name, "-")) for name in ("owner", "machine", "command"))
        command = " | ".join(filter(None, [progress(run["tags"]), command]))
        row = (run["name"] or run["run"], owner, _state(run), *_times(run, now), machine, command[:_WIDTH])
        rows.append(row)
    return table(rows)


def differences(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Sequence[Any]]:
    """Return the facts and parameters that differ, with the value of each run, or None."""
    rows = {name: [run["tags"].get(_TAG + name) for run in runs] for name in _COMPARED}
    rows.update(_values(runs, "params", "parameter"))
    return {name: values for name, values in rows.items() if len({*values}) > 1}


def _values(runs: Sequence[Mapping[str, Any]], part: str, kind: str) -> Mapping[str, Any]:
    names = chain(*(run[part] for run in runs))
    return {f"{kind} {name}": [run[part].get(name) for run in runs] for name in names}


def comparison(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Sequence[Any]]:
    """Return the names of runs, what differs, and their last metrics, each with the value of every run, or None."""
    names = [run["name"] or run["run"] for run in runs]
    return {"run": names, **differences(runs), **_values(runs, "metrics", "metric")}


def comparison_lines(rows: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a table with a column for each run."""
    texts = {name: ["-" if value is None else str(value)[:_WIDTH] for value in values] for name, values in rows.items()}
    return table([[name, *values] for name, values in texts.items()])


def comparison_csv(rows: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a comparison as CSV, with a line for each run, as programs for tables read it."""
    text = StringIO()
    cells = ([name, *("" if value is None else value for value in values)] for name, values in rows.items())
    csv.writer(text).writerows(zip(*([printable(str(cell)) for cell in column] for column in cells)))
    return iter(text.getvalue().splitlines())


def comparison_page(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the path of MLflow's page that compares runs."""
    ids = {"runs": [run["run"] for run in runs], "experiments": sorted({run["experiment"] for run in runs})}
    return f"/#/compare-runs?{urlencode({name: json.dumps(values) for name, values in ids.items()})}"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip()


def has_run_ended(run: Mapping[str, Any]) -> bool:
    """Return whether the record has the end of a run of bp."""
    return bool(run["tags"].get(f"{_TAG}state") == "ended")


def _state(run: Mapping[str, Any]) -> str:
    """Return the state by bp; of what has ended, or is not of bp, that of MLflow."""
    state, status = str(run["tags"].get(f"{_TAG}state", "ended")), str(run["status"])
    return status.lower() if state == "ended" or status not in _GOING_ON else state


def _times(run: Mapping[str, Any], now: float) -> tuple[str, str]:
    """Return when a run started, and how long it took or takes."""
    start, started = run["start_time"], moment(run["start_time"])
    if started == _UNKNOWN:
        return _UNKNOWN, _UNKNOWN
    seconds = max((run["end_time"] or int(now * 1000)) - start, 0) // 1000
    return started, f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def moment(milliseconds: Any) -> str:  # noqa: ANN401  of any kind
    """Return a time in the zone of this laptop."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M}"
    except (TypeError, OSError, OverflowError, ValueError):
        return _UNKNOWN


def _next_step(run: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Yield what a person may do with a run of bp, and whether its agent is silent."""
    name, seen = run["tags"].get(f"{_TAG}id"), str(run["tags"].get(f"{_TAG}seen"))
    if not name:
        return
    if has_run_ended(run):
        is_repeated = not {f"{_TAG}session", f"{_TAG}search"} & run["tags"].keys()
        yield "next", f"`bp logs {name}`" + (f", `bp again {name}`" if is_repeated else "")
        return
    if re.fullmatch("[0-9]{1,15}", seen) and now * 1000 - int(seen) > _SILENT:
        yield "silent since", f"{moment(int(seen))}: its machine, or the way to the hub, may be down"
    yield "next", f"`bp logs -f {name}`, `bp stop {name}`"


def show_lines(run: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield all that is known of a run, and say what is unknown; `now` is the hub's clock."""
    start, took = _times(run, now)
    tags = {key: value for key, value in run["tags"].items() if not key.startswith("mlflow.")}
    facts = {"name": run["name"] or _UNKNOWN, "state": _state(run), "started": start}
    facts["took" if run["end_time"] else "takes so far"] = took
    if elements := progress(run["tags"]):
        facts["elements"] = elements
        tags = {key: value for key, value in tags.items() if not _OF_ELEMENT.match(key)}
    # A run of bp has all that there is: a machine has no image, and what goes on has no cause.
    missing = "-" if f"{_TAG}id" in tags else _UNKNOWN
    facts.update({name: tags.pop(_TAG + name, missing) for name in _SHOWN})
    facts.update(_next_step(run, now))
    for title, values in (
        (run["run"], facts),
        *(("parameters", run["params"]), ("last metrics", run["metrics"]), ("other tags", tags)),
    ):
        yield title if values else f"{title}: none"
        width = max(map(len, values), default=0)
        for name, value in values.items():
            yield f"  {name.ljust(width)}  {value}"
