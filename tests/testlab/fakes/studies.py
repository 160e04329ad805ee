"""A record and a machine of a search in memory, with a clock that a test moves, and kills between any two requests."""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bedplate.programs.connection import FILES
from bedplate.programs.hub.rules import check_request
from bedplate.programs.hub.tokens import RefusedError, Token
from bedplate.programs.search.driver import Driver, params_of
from bedplate.programs.study import Settings, read_study
from tests.testlab.fakes.laptop import Answer, FakeHub

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


class _InTurn(Executor):
    """A pool that does what it is given before it returns."""

    def submit(self, function: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:  # noqa: ANN401
        """Call a function."""
        future = Future[Any]()
        future.set_result(function(*words, **options))
        return future


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
    price: float = 0

    def __post_init__(self) -> None:
        """Make the random faults."""
        self._random = random.Random(self.seed)  # noqa: S311  no secret

    def _maybe_die(self) -> None:
        if self._random.random() < self.faults:
            raise KilledError

    def driver(self, pool: Callable[[], Executor] | None = None) -> Driver:
        """Return a new driver; without pools, each start and stop is done when it is asked for."""
        facts: dict[str, Any] = {"name": "ada-lr", "settings": self.settings, "parallel": 4}
        facts["document"] = {"gpus": 1, "nodes": 1, "for": self.seconds}
        facts["tags"] = {"price": self.price}
        return Driver(facts, self, self, pool or _InTurn, self.lines.append)  # type: ignore[arg-type]

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
            run["values"][step] = run["metrics"][self.settings["study"]["metric"]] = self.curve(params_of(run), step)
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

    def check(self, runs: Iterable[Mapping[str, Any]]) -> None:
        """Do nothing, as a machine."""

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

    def stop(self, run: Mapping[str, Any], reason: str) -> str:
        """End a trial, which needs some seconds for that."""
        self._maybe_die()
        own = self.runs[int(run["run"])]
        if own["end_time"] is None:
            own["until"], own["by"] = min(own["until"], self.now + 3), f"ada-lr: {reason}"
        self._maybe_die()
        return ""

    def states(self) -> Iterator[tuple[int, str, str]]:
        """Yield number, status and cause of each trial."""
        for number, run in enumerate(self.runs):
            yield number, run["status"], run["tags"].get("bedplate.cause", "")


_API, _STUDY_TOKEN = "/api/2.0/mlflow/", "20001.1893456000.{}." + "R" * 24
_CONDITION = re.compile(r"(?:tags\.`([^`]+)`|attributes\.(\w+)) (?:= '([^']*)'|(IS NULL))")


class SearchHub(FakeHub):
    """A stand-in for the hub with the records of runs, their metrics and files, and tokens of any scope.

    `lost` is how many answers to new runs are lost.
    """

    def __init__(self, folder: Path, person: str = "ada", address: str = "127.0.0.1") -> None:
        super().__init__(folder, address=address)
        self.person = person
        self.runs, self.files, self.lost, self._lock = dict[str, dict[str, Any]](), dict[str, bytes](), 0, Lock()
        self.scopes: list[str] = []
        self.tokens = AnyToken(self.tokens)
        self.answer("/bedplate/end", {})
        self.answer("/bedplate/stop", {})
        self.answer(f"{_API}experiments/get-by-name", {"experiment": {"experiment_id": "7"}})

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request after another, those that the hub's rules allow."""
        scope = self.request.token.split(".")[2]
        try:
            check_request(Token(20001, 1_893_456_000, scope), self.person, method, self.request.target)
        except RefusedError as error:
            return error.status, {}, json.dumps({"message": str(error)}).encode()
        query = parse_qs(urlsplit(self.request.target).query)
        name = path.removeprefix(f"{FILES}/")
        if path == f"{_API}runs/get" and query["run_id"][0] not in self.runs:
            return 404, {}, b'{"message": "no such run"}'
        with self._lock:
            if name != path and method == "PUT":
                self.files[name] = body
                return 201, {}, b""
            if name != path:
                return (200, {}, self.files[name]) if name in self.files else (404, {}, b"{}")
            found = self._answer(path, query, json.loads(body) if body else {})
        return super().respond(method, path, body) if found is None else (200, {}, json.dumps(found).encode())

    def _answer(  # noqa: C901  a case for each route
        self, path: str, query: Mapping[str, list[str]], body: dict[str, Any]
    ) -> object:
        if path == "/bedplate/token":
            self.scopes.append(body["scope"])
            return {"token": _STUDY_TOKEN.format(body["scope"])}
        if path == f"{_API}artifacts/list":
            return {"files": self._listing(f"7/{query['run_id'][0]}/artifacts/", query["path"][0])}
        if path == "/ajax-api/2.0/mlflow/metrics/get-history-bulk":
            rows = [row for run in query["run_id"] for row in self.runs[run]["rows"]]
            return {"metrics": [row for row in rows if row["key"] == query["metric_key"][0]]}
        run = self.runs.get(body.get("run_id") or query.get("run_id", [""])[0], {})
        name = path.removeprefix(f"{_API}runs/")
        if name == "search":
            newest = sorted(self.runs.values(), key=lambda run: run["start_time"], reverse=True)
            return {"runs": [self._document(run) for run in newest if _is_wanted(run, body["filter"])]}
        if name == "create":
            tags = {tag["key"]: tag["value"] for tag in body["tags"]}
            assert not [run for run in self.runs.values() if run["run_name"] == body["run_name"]], "no run is doubled"
            facts = {"run_id": f"5ea{len(self.runs):029x}", "status": "RUNNING", "start_time": body["start_time"]}
            run = {**facts, "run_name": body["run_name"], "tags": tags, "params": {}, "rows": [], "end_time": 0}
            self.runs[run["run_id"]] = run
            self.lost -= 1
            if self.lost >= 0:
                raise ConnectionError("the answer is lost")
        elif name == "log-batch":
            for part in ("tags", "params"):
                run[part] |= {row["key"]: row["value"] for row in body.get(part, ())}
        elif name == "log-metric":
            run["rows"].append({"run_id": run["run_id"], **{key: body[key] for key in ("key", "value", "step")}})
            run["rows"][-1]["timestamp"] = str(body["timestamp"])
        elif name == "update":
            run |= {key: body[key] for key in ("status", "end_time") if key in body}
        elif name != "get":
            return None
        return {"run": self._document(run)}

    def _listing(self, top: str, folder: str) -> list[object]:
        """Return what a folder of a run has, as MLflow lists it."""
        paths = {name[len(top) :]: len(data) for name, data in self.files.items() if name.startswith(f"{top}{folder}/")}
        names = {path[len(folder) + 1 :].partition("/")[0] for path in paths}
        entries = {f"{folder}/{name}": paths.get(f"{folder}/{name}") for name in sorted(names)}
        return [{"path": path, "is_dir": size is None, "file_size": size} for path, size in entries.items()]

    def add_run(self, name: str, **tags: str) -> str:
        """Add a run of a person that goes on, and return its id."""
        run = f"5ea{len(self.runs):029x}"
        facts = {"run_id": run, "status": "RUNNING", "start_time": 1_000, "end_time": 0, "run_name": name}
        tags = {"id": name, "owner": "ada", "state": "running", **tags}
        own = {"tags": {f"bedplate.{key}": value for key, value in tags.items()}, "params": {}, "rows": []}
        self.runs[run] = {**facts, **own}
        return run

    def end_run(self, run: str, status: str = "FINISHED") -> None:
        """End a run."""
        self.runs[run].update(status=status, end_time=2_000)
        self.runs[run]["tags"]["bedplate.state"] = "ended"

    @staticmethod
    def _document(run: Mapping[str, Any]) -> object:
        info = {key: run[key] for key in ("run_id", "run_name", "status", "start_time", "end_time")}
        newest = {row["key"]: row for row in sorted(run["rows"], key=lambda row: int(row["step"]))}
        data: dict[str, object] = {"metrics": [*newest.values()]}
        data |= {part: [{"key": k, "value": v} for k, v in run[part].items()] for part in ("tags", "params")}
        return {"info": {**info, "experiment_id": "7"}, "data": data}

    def tagged(self, name: str, value: str) -> list[dict[str, Any]]:
        """Return the runs with a tag of bp, in the order of their names."""
        found = [run for run in self.runs.values() if run["tags"].get(f"bedplate.{name}") == value]
        return sorted(found, key=lambda run: str(run["run_name"]))


class AnyToken(set[str]):
    """Tokens of a person, and of any run or study."""

    def __contains__(self, token: object) -> bool:
        """Return whether the hub accepts a token."""
        return super().__contains__(token) or str(token).endswith("R" * 24)


def _is_wanted(run: Mapping[str, Any], text: str) -> bool:
    for tag, attribute, value, is_null in _CONDITION.findall(text):
        own = run["tags"].get(tag) if tag else run[attribute]
        if own is not None if is_null else own != value:
            return False
    return True
