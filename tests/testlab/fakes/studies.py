"""A record and a machine of a search in memory, with a clock that a test moves, and kills between any two requests."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.programs.search.driver import Driver, params_of
from bedplate.programs.study import Settings, read_study

Curve = Callable[[Mapping[str, str], int], float]
FILE = """
[study]
name = lr
metric = loss
direction = minimize
trials = {trials}
parallel = 4
{more}

[parameters]
lr = log 1e-5 1e-1
layers = int 1 8

[run]
command = python train.py --lr {{lr}} --layers {{layers}}
gpus = 1
"""


class KilledError(BaseException):
    """The driver is killed here."""


def study_of(more: str = "", trials: int = 12) -> Settings:
    """Return the study of a file with other lines in its section [study]."""
    return read_study(FILE.format(more=more, trials=trials))


@dataclass
class World:
    """The hub and the machine: trials take a step of a curve in ten seconds, up to nine, and then end.

    `faults` is how often a request is lost or kills the driver; `crash` says whether a trial fails at once.
    """

    settings: Settings
    curve: Curve = lambda params, step: abs(float(params["lr"]) - 0.01) + 1 / (step + 1)
    seconds: float = 3_600
    steps: int = 9
    faults: float = 0.0
    seed: int = 0
    crash: Callable[[int], bool] = lambda _: False
    now: float = 1_000.0
    runs: list[dict[str, Any]] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    most: int = 0

    def __post_init__(self) -> None:
        """Make the random faults."""
        self._random = random.Random(self.seed)  # noqa: S311  no secret

    def _maybe_die(self) -> None:
        if self._random.random() < self.faults:
            raise KilledError

    def driver(self) -> Driver:
        """Return a new driver."""
        facts = {"name": "ada-lr", "settings": self.settings, "gpus": 1, "for": self.seconds, "parallel": 4}
        return Driver(facts, self, self, self.lines.append)

    def search(self, most: int = 2_000) -> Driver:
        """Drive the search to its end, as often as the driver is killed."""
        for _ in range(most):
            driver = self.driver()
            try:
                driver.start()
                while driver.step():
                    self.pass_time(5)
                self._maybe_die()
            except KilledError:
                self.pass_time(self._random.choice((0, 5, 30)))
            else:
                self.lines += driver.summary()
                return driver
        raise AssertionError("the search has no end")

    def pass_time(self, seconds: float) -> None:
        """Let the trials go on."""
        self.now += seconds
        for run in self.runs:
            if run["end_time"] is None and run["name"] in self.starts:
                self._go_on(run)
        self.most = max(self.most, sum(run["end_time"] is None for run in self.runs))

    def _go_on(self, run: dict[str, Any]) -> None:
        age = min(self.now, run["until"]) - run["started"]
        run["tags"].update({"bedplate.state": "running", "bedplate.seen": str(int(self.now * 1000))})
        run["tags"]["bedplate.ran.1"] = f"{age:.0f}"
        number = int(run["name"][-4:])
        if self.crash(number):
            self._end(run, "FAILED", "the program ended with exit code 1")
            return
        for step in range(1, min(int(age // 10), self.steps) + 1):
            run["values"][step] = run["metrics"]["loss"] = self.curve(params_of(run), step)
        if self.now >= run["until"]:
            self._end(run, "KILLED", f"stopped by {run['by']}" if run["by"] else "stopped: its time was over")
        elif age >= self.steps * 10:
            self._end(run, "FINISHED", "")

    def _end(self, run: dict[str, Any], status: str, cause: str) -> None:
        run.update({"status": status, "end_time": int(self.now * 1000)})
        run["tags"].update({"bedplate.state": "ended", "bedplate.cause": cause})

    def all(self) -> Sequence[Mapping[str, Any]]:
        """Return all trials."""
        self._maybe_die()
        return [self._copy(run) for run in self.runs]

    def look(self, known: Mapping[int, Any]) -> Mapping[int, Mapping[str, Any]]:
        """Return the newest records of trials."""
        self._maybe_die()
        return {number: self._copy(self.runs[number]) for number in known}

    def values(self, runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[int, float]]:
        """Return the values of runs."""
        self._maybe_die()
        return {run["run"]: dict(self.runs[int(run["run"])]["values"]) for run in runs}

    @staticmethod
    def _copy(run: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**run, **{part: dict(run[part]) for part in ("tags", "metrics")}}

    def create(self, number: int, params: Mapping[str, str]) -> Mapping[str, Any]:
        """Make a trial: before it or after it the driver may die."""
        self._maybe_die()
        assert number == len(self.runs), "numbers have no gaps, and each is made once"
        text = str(dict(params)).replace("'", '"')
        tags = {"bedplate.state": "sent", "bedplate.trial": text}
        facts = {"run": str(number), "name": f"ada-lr-{number:04}", "status": "RUNNING", "metrics": {}, "values": {}}
        times = {"start_time": int(self.now * 1000), "end_time": None, "until": float("inf"), "by": ""}
        self.runs.append({**facts, **times, "tags": tags, "params": dict(params)})
        self._maybe_die()
        return self._copy(self.runs[number])

    def end(self, run: Mapping[str, Any], cause: str) -> None:
        """End a trial that did not start."""
        self._end(self.runs[int(run["run"])], "FAILED", cause)

    def start(self, run: Mapping[str, Any], params: Mapping[str, str], seconds: float) -> str:
        """Start a trial once."""
        self._maybe_die()
        assert params == run["params"]
        own = self.runs[int(run["run"])]
        if run["name"] not in self.starts:
            own.update({"started": self.now, "until": self.now + seconds})
        self.starts[run["name"]] = self.starts.get(run["name"], 0) + 1
        self._maybe_die()
        return ""

    def stop(self, run: Mapping[str, Any], reason: str) -> None:
        """End a trial, which needs some seconds for that."""
        self._maybe_die()
        own = self.runs[int(run["run"])]
        if own["end_time"] is None:
            own["until"], own["by"] = min(own["until"], self.now + 3), f"ada-lr: {reason}"
        self._maybe_die()

    def states(self) -> Iterator[tuple[int, str, str]]:
        """Yield number, status and cause of each trial."""
        for number, run in enumerate(self.runs):
            yield number, run["status"], run["tags"].get("bedplate.cause", "")
