"""Clients of MLflow on a node: requests over its unix socket, as nginx sends them, and agents that log metrics."""

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.testlab.machines.container import CommandError, Machine
from tests.testlab.machines.node_lab import Node

API = "/api/2.0/mlflow"
Document = Mapping[str, Any]


class UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class RefusedError(Exception):
    """An answer that is no success."""


@dataclass
class Records:
    """MLflow on a node."""

    node: Node

    @property
    def socket(self) -> Path:
        """The socket, as this machine sees it; a boot changes the path."""
        machine = self.node.machine
        assert isinstance(machine, Machine)
        return Path(f"/proc/{machine.first()}/root/run/mlflow/socket")

    def call(self, path: str, body: Document | None = None) -> Any:  # noqa: ANN401  the document of the answer
        """Return the answer to a call of the API. Raises RefusedError, or OSError if nothing answers."""
        try:
            connection = UnixConnection(self.socket)
        except CommandError as error:
            raise OSError(str(error)) from error
        try:
            text = None if body is None else json.dumps(body)
            method = "GET" if body is None else "POST"
            connection.request(method, f"{API}/{path}", text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise RefusedError(f"{answer.status}: {content[:300]!r}")
        return json.loads(content)

    def repeat(self, path: str, body: Document | None = None, seconds: float = 300) -> Any:  # noqa: ANN401
        """Return the answer to a call, which is repeated until it succeeds."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.call(path, body)
            except (OSError, RefusedError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def experiment(self) -> str:
        """Return the id of the experiment of runs."""
        return str(self.repeat("experiments/get-by-name?experiment_name=jobs")["experiment"]["experiment_id"])

    def create(self, name: str) -> str:
        """Create the run of a name, unless an earlier call has, and return its id."""
        experiment = self.experiment()
        search = {"experiment_ids": [experiment], "filter": f"tags.`bedplate.id` = '{name}'"}
        while True:
            if runs := self.repeat("runs/search", search).get("runs"):
                return str(runs[0]["info"]["run_id"])
            tags = [{"key": "bedplate.id", "value": name}]
            try:
                self.call("runs/create", {"experiment_id": experiment, "start_time": _now(), "tags": tags})
            except (OSError, RefusedError):
                time.sleep(0.5)

    def values(self, run: str, key: str) -> list[float]:
        """Return the values of a metric by step."""
        answer = self.repeat(f"metrics/get-history?run_id={run}&metric_key={key}&max_results=25000")
        return [metric["value"] for metric in sorted(answer.get("metrics", ()), key=lambda metric: metric["step"])]


def _now() -> int:
    return int(time.time() * 1000)


@dataclass
class Agents:
    """Agents that each log ten metrics a second, and repeat what was not answered."""

    records: Records
    count: int
    seconds: int
    slowest: float = 0
    failures: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Log for the given time, and return the runs."""
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(self._log, range(self.count)))

    def _log(self, number: int) -> str:
        run = self.records.create(f"agent-{number}")
        start = time.monotonic() + number / self.count
        for step in range(self.seconds):
            time.sleep(max(0.0, start + step - time.monotonic()))
            began = time.monotonic()
            try:
                self.records.repeat("runs/log-batch", {"run_id": run, "metrics": list(_metrics(step))})
            except (OSError, RefusedError) as error:
                self.failures.append(str(error))
            self.slowest = max(self.slowest, time.monotonic() - began)
        return run


def _metrics(step: int) -> Iterator[Document]:
    for number in range(10):
        yield {"key": f"m{number}", "value": step, "timestamp": _now(), "step": step}
