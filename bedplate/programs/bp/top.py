"""`bp top`: what the GPUs of runs do now and did in the last day, which are idle, and what waits for some."""

import argparse
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from .hub import BpError, Hub, printable, write
from .jobset import name_of
from .queue import queue_lines, read_queue
from .records import table, tagged_runs

_API, _TAG = "/prometheus/api/v1/", "bedplate."
_HOUR, _HOURS, _WAITING = 3_600, 24, 20
# Seconds: for an answer, and between two frames.
_PATIENCE, _PAUSE = 5.0, 10.0
# What each GPU does, by run and machine; and by run, also for how many hours GPUs were idle, and what that has cost.
_GPUS = {
    "gpus": "sum by (person, run, instance) (bedplate:gpu_owner{%s})",
    "busy": "avg by (person, run, instance) (bedplate:gpu_busy{%s})",
    "memory_used_bytes": "sum by (person, run, instance) (bedplate:gpu_memory_used_bytes{%s})",
    "memory_bytes": "sum by (person, run, instance) (bedplate:gpu_memory_bytes{%s})",
    "power_watts": "sum by (person, run, instance) (bedplate:gpu_power_watts{%s})",
}
_IDLE = 'sum by (person, run) (sum_over_time(bedplate:%s{%%s,state=~"held|stuck"}[1d:1m])) / 60'
_RUNS = {
    "states": "sum by (person, run, state) (bedplate:used_gpus{%s})",
    "idle_gpu_hours": _IDLE % "used_gpus",
    "idle_usd": _IDLE % "used_usd_per_hour",
}
_BUSY = "avg by (person, run) (avg_over_time(bedplate:run_busy{%s}[1h]))"
_BLOCKS = "▁▂▃▄▅▆▇█"
Object = Mapping[str, Any]


def read_top(hub: Hub, *, is_all: bool) -> Object:
    """Return runs with what their GPUs do, and those that wait: of this person or of all; and what is unknown."""
    who = 'person!=""' if is_all else f'person="{hub.settings.person}"'
    tags = {} if is_all else {"owner": hub.settings.person}
    unknown: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        samples = pool.submit(_samples, hub, who)
        strips = pool.submit(_strips, hub, who)
        records = pool.submit(tagged_runs, hub, is_running=True, **tags)
        line = pool.submit(read_queue, hub, _WAITING, is_all=is_all)
        known = _result(records, unknown, "the record", list)
        waiting = {"runs": [], "more": 0, **_result(line, unknown, "the queue", dict)}
        runs = _rows(_result(samples, unknown, "figures of GPUs", list), _result(strips, unknown, "the day", dict))
    # Figures have the names of pods, which differ from the id of a run with `_`, or a long one.
    ids = {(own.get("owner"), name_of(own["id"])): own["id"] for own in map(_tags, known) if "id" in own}
    runs = {(key[0], ids.get(key, key[1])): {**row, "run": ids.get(key, key[1])} for key, row in runs.items()}
    in_cluster = {run["name"] for run in waiting["runs"]}
    for record in known:
        own = _tags(record)
        # Elements of arrays and trials of studies use the GPUs of another run, or have figures of their own.
        if {"parent", "study"} & own.keys():
            continue
        key = (own.get("owner", "-"), own.get("id") or record["name"])
        if own.get("state") == "running" and key not in runs:
            runs[key] = {**_row(*key), "gpus": own.get("gpus", "-"), "machines": {own.get("machine", "-"): {}}}
        elif own.get("state") in {"sent", "queued"} and "image" not in own and key[1] not in in_cluster:
            why = f"It waits for GPUs of {own.get('machine', 'its machine')}."
            facts = {"place": None, "owner": key[0], "since": record["start_time"], "name": key[1], "why": why}
            waiting["runs"].append({**facts, **{word: own.get(word) for word in ("priority", "gpus", "nodes")}})
    rows = sorted(runs.values(), key=lambda row: (-row["idle_usd"], -row["idle_gpu_hours"], row["person"], row["run"]))
    return {"time": int(hub.now), "runs": rows, "waiting": waiting, "unknown": [*dict.fromkeys(unknown)]}


def _result(future: "Future[Any]", unknown: "list[str]", name: str, default: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return what a thread has found, and note why there is nothing."""
    try:
        return future.result()
    except BpError as error:
        unknown.append(f"{name}: {error}")
    except (LookupError, TypeError, ValueError):
        unknown.append(f"{name}: the hub's answer is not that of Prometheus")
    return default()


def _samples(hub: Hub, who: str) -> "list[tuple[Mapping[str, str], float]]":
    """Return labels and values of all current figures, by one request; `what` is the name of the figure."""
    parts = {**_GPUS, **_RUNS}.items()
    query = " or ".join(f'label_replace({text % who}, "what", "{name}", "", "")' for name, text in parts)
    found = hub.call(f"{_API}query?{urlencode({'query': query})}", patience=_PATIENCE)
    return [(item["metric"], float(item["value"][1])) for item in found["data"]["result"]]


def _strips(hub: Hub, who: str) -> "Mapping[tuple[str, str], list[float | None]]":
    """Return how busy each run was in each of the last 24 hours; None for an hour in which it had no GPU."""
    end = int(hub.now)
    span = {"query": _BUSY % who, "start": end - (_HOURS - 1) * _HOUR, "end": end, "step": _HOUR}
    strips = {}
    for item in hub.call(f"{_API}query_range?{urlencode(span)}", patience=_PATIENCE)["data"]["result"]:
        hours = {round((end - float(time)) / _HOUR): float(value) for time, value in item["values"]}
        strips[_key(item["metric"])] = [hours.get(hour) for hour in reversed(range(_HOURS))]
    return strips


def _rows(samples: Any, strips: Any) -> "dict[tuple[str, str], dict[str, Any]]":  # noqa: ANN401
    """Return what each run does that has GPUs now, by its person and name."""
    machines: Any = defaultdict(lambda: defaultdict(dict))
    figures: Any = defaultdict(lambda: {"states": {}, "idle_gpu_hours": 0.0, "idle_usd": 0.0})
    for labels, value in samples:
        what, key = labels["what"], _key(labels)
        if what in _GPUS:
            machines[key][labels["instance"]][what] = value
        elif what == "states":
            figures[key][what][labels["state"]] = int(value)
        else:
            figures[key][what] = value
    rows = {}
    # A run that has ended has idle hours, and no GPU.
    for key in [key for key in machines if any("gpus" in facts for facts in machines[key].values())]:
        own = machines[key].values()
        row = {**_row(*key), **figures[key], "machines": {name: machines[key][name] for name in sorted(machines[key])}}
        row.update({what: _sum(own, what) for what in _GPUS})
        # Of machines with different numbers of GPUs.
        shares = [(facts["busy"] * facts["gpus"], facts["gpus"]) for facts in own if {"busy", "gpus"} <= facts.keys()]
        row["busy"] = sum(share for share, _ in shares) / sum(gpus for _, gpus in shares) if shares else None
        row["gpus"], row["hours"] = int(row["gpus"]), strips.get(key, [])
        rows[key] = row
    return rows


def _row(person: str, run: str) -> "dict[str, Any]":
    row: dict[str, Any] = {"person": person, "run": run, "states": {}, "idle_gpu_hours": 0.0, "idle_usd": 0.0}
    return {**row, **dict.fromkeys(_GPUS), "hours": [], "machines": {}}


def _sum(machines: Any, what: str) -> "float | None":  # noqa: ANN401
    values = [facts[what] for facts in machines if what in facts]
    return sum(values) if values else None


def _key(labels: "Mapping[str, str]") -> "tuple[str, str]":
    return labels.get("person", ""), labels.get("run", "")


def _tags(record: Object) -> "Mapping[str, str]":
    return {key[len(_TAG) :]: str(value) for key, value in record["tags"].items() if key.startswith(_TAG)}


def top_lines(document: Object) -> Iterator[str]:
    """Yield a line for each run with GPUs, then those that wait, and what is unknown."""
    head = ("RUN", "OWNER", "GPUS", "BUSY", "MEMORY", "POWER", "LAST 24 HOURS", "MACHINE", "STATE")
    yield from table([head, *map(_cells, document["runs"])]) if document["runs"] else ["No run has a GPU."]
    yield ""
    waiting = document["waiting"]
    yield from queue_lines(waiting) if waiting["runs"] else ["Nothing waits."]
    yield from (f"unknown: {text}" for text in document["unknown"])


def _cells(row: Object) -> "tuple[str, ...]":
    used, all_memory, watts, busy = (row[name] for name in ("memory_used_bytes", "memory_bytes", "power_watts", "busy"))
    memory = f"{used / 2**30:.0f}/{all_memory / 2**30:.0f} GiB" if None not in {used, all_memory} else "-"
    first, *others = row["machines"] or ["-"]
    names = f"{first} +{len(others)}" if others else first
    power = "-" if watts is None else f"{watts:,.0f} W"
    facts = (str(row["gpus"]), "-" if busy is None else f"{busy:.0%}", memory, power, _strip(row["hours"]), names)
    return (row["run"] or "(no run)", row["person"], *facts, _state(row))


def _strip(hours: "list[float | None]") -> str:
    last = len(_BLOCKS) - 1
    return "".join(" " if busy is None else _BLOCKS[min(max(round(busy * last), 0), last)] for busy in hours)


def _state(row: Object) -> str:
    """Return in words what the GPUs of a run do, and what they have cost without work."""
    states = row["states"]
    text = ", ".join(f"{states[name]} {name}" if len(states) > 1 else name for name in sorted(states)) or "-"
    if row["idle_gpu_hours"] * 60 < 1:
        return text
    cost = f", {row['idle_usd']:.2f} USD" if row["idle_usd"] else ""
    return f"{text}: {row['idle_gpu_hours']:.1f} GPU hours idle since yesterday{cost}"


def watch_top(hub: Hub, options: argparse.Namespace) -> int:
    """Show the newest frame on this terminal until Ctrl-C; return the exit code."""
    with suppress(KeyboardInterrupt):
        while True:
            lines = chain(top_lines(read_top(hub, is_all=options.all)), ["", "Ctrl-C ends this."])
            columns, rows = shutil.get_terminal_size()
            frame = [printable(line)[:columns] for line in lines][: rows - 1]
            # To the top left, and without the rest of the former frame.
            write(("\x1b[H\x1b[2J" + os.linesep.join(frame) + os.linesep).encode(errors="replace"))
            time.sleep(_PAUSE)
    return 0
