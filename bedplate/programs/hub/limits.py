"""What ends runs that go on: budgets of people, and idle runs. The sweep decides, and agents ask for the causes.

Colleagues can write the tags of a run. So its owner is who first asked for its token, and its agent itself says with
that token whether it is idle.
"""

import json
import re
import sys
import time
from calendar import timegm
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from .records import Lines, replace_text
from .sweep import Record, Run

STOPS, IDLE, SPENT = "tokens/stops", "tokens/idle", "tokens/spent"
"""Files of lines: runs to stop and their causes, idle ones with seconds and causes, what people have spent."""
_STATE = "tokens/limits"
# Seconds: between a warning and the stop of an idle run, for which a search looks back, between two of a whole month.
_WARNED, _BACK, _WHOLE = 600, 7_200, 21_600
# The share of a budget at which its person gets a message.
_WARN_AT = 0.9
_LARGEST, _DIGITS = 1e6, 16
# What is taken from texts that colleagues can write: names without spaces, and minutes of a session's own warning.
_WORD = re.compile("[A-Za-z0-9_.-]{1,200}")
_MINUTES = re.compile("idle for ([0-9]{1,5}) min.* ends in ([0-9]{1,3}) min")


def month_of(now: float) -> tuple[str, float]:
    """Return the calendar month of a time in UTC, and its first second."""
    month = time.strftime("%Y-%m", time.gmtime(now))
    return month, timegm(time.strptime(month, "%Y-%m"))


def used_seconds(run: Run, since: float, now: float) -> float:
    """Return for how long a run has had its machines, at most from a time on: waits are free.

    Its agents say how long each of them has run; of a run over the end of a month the last hours count.
    """
    spans = [float(text) for name, text in run.items() if name.startswith("ran.") and str(text).isdecimal()]
    end = now if run["status"] == "RUNNING" else run["end"]
    total = sum(spans) if spans else end - run["start"] if "seen" in run else 0.0
    return max(min(total, end - max(since, float(run["start"]))), 0.0)


def cost_of(run: Run, since: float, now: float) -> float | None:
    """Return the US dollars of a run from a time on; None if its price is unknown."""
    seconds = used_seconds(run, since, now)
    try:
        price, nodes = float(str(run.get("price", ""))), int(str(run.get("nodes", "1")))
    except ValueError:
        return None if seconds else 0.0
    # Also if somebody has written nan or inf.
    return min(max(0.0, price * nodes), _LARGEST) * seconds / 3_600


class Limits:
    """The state of the limits in a file of the sweep. Methods raise OSError, and those that search HTTPException."""

    def __init__(self, volume: Path, fleet: Mapping[str, Any], people: Mapping[str, str], now: float) -> None:
        self._volume, self._fleet, self._people, self._now = volume, fleet, people, now
        self._file, self._stops = volume / _STATE, Lines(volume / STOPS)
        self._owners = Lines(volume / "tokens/runs").read()
        self._month, self._since = month_of(now)
        state = json.loads(self._file.read_text()) if self._file.exists() else {}
        if state.get("month") != self._month:
            state = {"month": self._month, "whole": 0, "ended": {}, "warned": state.get("warned", {})}
        self._ended, self._whole, self._former = state["ended"], state["whole"], state["warned"]
        self._warned = dict[str, float]()
        self.news: list[tuple[str, Mapping[str, Any]]] = []
        """Messages: a person and what to tell."""

    def apply(self, record: Record, runs: Sequence[Run]) -> None:
        """Note what people have spent, warn, and stop; `runs` are those that go on."""
        if self._fleet.get("budgets"):
            self._check_budgets(self._spent(record, runs), runs)
        idle = [self._idle_line(run, **self._fleet["idle"]) for run in runs] if self._fleet.get("idle") else []
        replace_text(self._volume / IDLE, "".join(idle))
        for run in runs:
            # A session warns and ends by itself.
            if "session" in run and (minutes := _MINUTES.match(str(run.get("warning", "")))):
                then = f"It ends in {minutes[2]} min unless it is used or extended"
                text = f"the session {_name_of(run)} is idle for {minutes[1]} min. {then}"
                news = {"run": run["run"], "name": _name_of(run), "state": "idle", "text": text}
                self._warn(f"session:{run['run']}", self._person(run["run"]), news)
        state = {"month": self._month, "whole": self._whole, "ended": self._ended, "warned": self._warned}
        replace_text(self._file, json.dumps(state))

    def _person(self, run: str) -> str:
        return self._people.get(self._owners.get(run, ""), "")

    def _spent(self, record: Record, runs: Sequence[Run]) -> Mapping[str, tuple[float, int]]:
        """Return what each person has spent this month, and of how many runs the price is unknown."""
        is_whole = self._now - self._whole > _WHOLE
        since = self._since if is_whole else max(self._now - _BACK, self._since)
        for run in record.search(f"attributes.end_time > {int(since * 1000)}"):
            if run["status"] != "RUNNING":
                self._ended[run["run"]] = cost_of(run, self._since, self._now)
        self._whole = self._now if is_whole else self._whole
        # A run that was counted as lost goes on.
        going_on = {run["run"]: cost_of(run, self._since, self._now) for run in runs}
        sums = dict[str, tuple[float, int]]()
        for run, cost in {**self._ended, **going_on}.items():
            spent, unknown = sums.get(self._person(run), (0.0, 0))
            sums[self._person(run)] = spent + (cost or 0.0), unknown + (cost is None)
        budgets = self._fleet["budgets"]
        words = {name: "{:.2f} {}".format(*sums.get(name, (0.0, 0))) for name in budgets}
        lines = [f"{name} {words[name]} {budget:g} {self._month}\n" for name, budget in budgets.items()]
        replace_text(self._volume / SPENT, "".join(lines))
        return sums

    def _check_budgets(self, spent: Mapping[str, tuple[float, int]], runs: Sequence[Run]) -> None:
        is_enforced = bool(self._fleet.get("enforce"))
        for name, budget in self._fleet["budgets"].items():
            amount = spent.get(name, (0.0, 0))[0]
            what = f"the budget of {name} for {self._month}, {budget:g} USD"
            if amount >= _WARN_AT * budget:
                then = "your runs are stopped when it is used up" if is_enforced else "new runs are refused when it is"
                text = f"{amount:.2f} USD of {what}, are spent: {then}"
                self._warn(f"budget:{name}:{self._month}", name, {"name": "", "text": text, "state": "budget"})
            if is_enforced and amount >= budget:
                for run in runs:
                    if self._person(run["run"]) == name and run.get("state") != "ended":
                        self._stops.claim(run["run"], f"stopped: {what}, is used up")

    def _idle_line(self, run: Run, after: float, then: str) -> str:
        """Return the line of a run that must end unless it works; warn before."""
        since = str(run.get("idle_since", ""))
        idle = self._now - float(since) / 1000 if since.isdecimal() and len(since) < _DIGITS else 0.0
        if run.get("state") != "running" or idle < after:
            return ""
        name, machine = _name_of(run), str(run.get("machine", ""))
        machine = machine if _WORD.fullmatch(machine) else ""
        what = f"used no processor and printed nothing for {timedelta(seconds=after)}"
        end = f". It is stopped in {_WARNED // 60} minutes unless it works" if then == "stop" else ""
        news = {"run": run["run"], "name": name, "machine": machine, "state": "idle"}
        warned = self._warn(f"idle:{run['run']}", self._person(run["run"]), {**news, "text": f"{name} has {what}{end}"})
        is_due = then == "stop" and self._now - warned >= _WARNED
        return f"{run['run']} {after:.0f} stopped: it has {what}\n" if is_due else ""

    def _warn(self, key: str, person: str, news: Mapping[str, Any]) -> float:
        """Tell a person once, as long as the reason lasts; return when that was."""
        self._warned[key] = self._former.get(key, self._now)
        if key not in self._former:
            self.news.append((person, {"run": "", "machine": "", "cause": "", **news, "time": int(self._now)}))
        return self._warned[key]


def _name_of(run: Run) -> str:
    """Return the name of a run, or its id if somebody has written a text there."""
    name = str(run.get("id", run["name"]))
    return name if _WORD.fullmatch(name) else str(run["run"])


def stop_cause(stops: Mapping[str, str], idle_runs: Mapping[str, str], run: str, idle: int) -> str:
    """Return why a run must end; empty if it may go on. An idle one may that works again, by the word of its agent."""
    after, _, cause = idle_runs.get(run, "").partition(" ")
    return stops.get(run, "") or (cause if after and idle >= int(after) else "")


def main(volume: Path, people: Path, runs: Sequence[Run]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Apply the limits to runs that go on; return the messages. A failure keeps no other message back."""
    file, now = volume / "public/fleet.json", time.time()
    try:
        limits = Limits(volume, json.loads(file.read_text()) if file.exists() else {}, Lines(people).read(), now)
        limits.apply(Record(), runs)
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"<3>limits: {error}\n")
        return ()
    return limits.news
