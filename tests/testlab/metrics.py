"""A real Prometheus with the normalised series of a trace: what a hub would have stored in a week, within seconds."""

import json
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from roles.prometheus.role import QUERY_LIMITS
from tests.testlab.run import need_program

STEP = 300
"""Seconds between two samples of a trace."""
HOUR, DAY = 3_600, 86_400
_GIB = 2**30
Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
Samples = dict[Key, list[tuple[int, float]]]


@dataclass(frozen=True)
class Use:
    """What some GPUs of a machine do from a time on until another one."""

    start: float
    end: float
    state: str = "free"
    person: str = ""
    run: str = ""
    busy: float = 0.0


@dataclass(frozen=True)
class Machine:
    """A machine with the uses of each of its GPUs, and its price an hour; 0 if it is unknown."""

    name: str
    place: str
    group: str
    usd: float
    gpus: tuple[tuple[Use, ...], ...] = ()

    def uses_at(self, at: float) -> Iterator[tuple[int, Use]]:
        """Yield the GPUs by their numbers, each with its use at a time."""
        for number, uses in enumerate(self.gpus):
            yield from [(number, use) for use in uses if use.start <= at < use.end][:1]


def last_sample(now: float) -> int:
    """Return the time of the last sample before now."""
    return int(now) // STEP * STEP


def normalised(machines: Iterable[Machine], times: Sequence[int], gpus_from: int = 0) -> Samples:
    """Return the series of machines at these times; those of each GPU from a later time on, to have fewer."""
    samples: Samples = defaultdict(list)
    for at in times:
        sums: dict[Key, float] = defaultdict(float)
        runs: dict[Labels, list[float]] = defaultdict(list)
        for machine in machines:
            place = {"place": machine.place, "group": machine.group}
            if machine.usd:
                sums["bedplate:group_usd_per_hour", _labels(place)] += machine.usd
            for number, use in machine.uses_at(at):
                who, price = {"person": use.person, "run": use.run}, machine.usd / len(machine.gpus)
                key = _labels({**place, **who, "state": use.state})
                sums["bedplate:used_gpus", key] += 1
                sums["bedplate:used_usd_per_hour", key] += price
                runs[_labels(who)].append(use.busy)
                figures = _figures(use, price).items() if at >= gpus_from else ()
                labels = _labels({"instance": machine.name, **place, **who, "gpu": str(number)})
                for name, value in figures:
                    samples[f"bedplate:gpu_{name}", labels].append((at, value))
        sums.update({("bedplate:run_busy", who): sum(shares) / len(shares) for who, shares in runs.items() if who})
        for series, value in sums.items():
            if value or "usd" not in series[0]:
                samples[series].append((at, value))
    return samples


def _figures(use: Use, price: float) -> dict[str, float]:
    owner = {"owner": 1.0} if use.person else {}
    figures = {"busy": use.busy, "memory_used_bytes": 30.0 * _GIB * bool(use.person), "memory_bytes": 80.0 * _GIB}
    return {**owner, **figures, "power_watts": 100 + 600 * use.busy, "usd_per_hour": price}


def _labels(labels: Mapping[str, str]) -> Labels:
    # An empty label is none.
    return tuple(sorted((name, value) for name, value in labels.items() if value))


class Store:
    """A Prometheus on a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the answer to a request."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST" if body else "GET", target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextmanager
def store_of(folder: Path, samples: Samples) -> Iterator[Store]:
    """Yield a Prometheus that has these series."""
    need_program("prometheus")
    need_program("promtool")
    text, data, settings = (folder / name for name in ("series", "data", "prometheus.yml"))
    with text.open("w") as file:
        former = ""
        for (name, labels), values in sorted(samples.items()):
            file.write(f"# TYPE {name} gauge\n" if name != former else "")
            former, series = name, ",".join(f"{key}={json.dumps(value)}" for key, value in labels)
            file.writelines(f"{name}{{{series}}} {value} {at}\n" for at, value in values)
        file.write("# EOF\n")
    # By default it makes a block of two hours by each reading of the file.
    words = ("tsdb", "create-blocks-from", "--max-block-duration=1000h", "openmetrics")
    command = ("promtool", *words, str(text), str(data))
    subprocess.run(command, check=True, capture_output=True)
    text.unlink()
    settings.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options: dict[str, Any] = {"config.file": settings, "storage.tsdb.path": data}
    # Rules mark the end of a series, which a file of samples cannot do.
    options |= {"web.listen-address": f"127.0.0.1:{port}", "query.lookback-delta": f"{STEP - 1}s"}
    options |= {"storage.tsdb.retention.time": "30d", "log.level": "error"}
    own = (f"--{name}={value}" for name, value in options.items())
    process = subprocess.Popen(("prometheus", *own, *QUERY_LIMITS))
    try:
        store, end = Store(port), time.monotonic() + 60
        while not _is_ready(store):
            assert process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < end, "Prometheus does not get ready"
            time.sleep(0.05)
        yield store
    finally:
        process.terminate()
        process.wait()


def _is_ready(store: Store) -> bool:
    try:
        return store.get("/-/ready")[0] == 200
    except OSError:
        return False
