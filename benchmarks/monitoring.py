"""How fast people and operators get figures of 8,000 GPUs, from a real Prometheus with a week of synthetic series.

`bp top` runs as on a laptop, with a stand-in for nginx that passes its questions on; operators' questions are asked
directly. The peer is the sum of one series over all GPUs. GPUs have their newest samples only.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from bedplate.operate.watch import FLEET, query_of, report_parts
from tests.testlab.fakes.laptop import FakeHub, Laptop, oldest_python
from tests.testlab.metrics import DAY, HOUR, STEP, Machine, Store, Use, last_sample, normalised, store_of
from tests.testlab.run import clock_pace, remove_credentials

NODES, GPUS, PEOPLE, RUNS = 1000, 8, 40, 300
MAX_QUERIES_S, MAX_FRAME_S, MAX_FLEET_S, MAX_WEEK_S = 0.5, 1.0, 1.5, 10.0
REPEATS = 5
_STATES = (("busy", 0.9), ("busy", 0.5), ("held", 0.0), ("stuck", 0.0))


def machines(now: int) -> Iterator[Machine]:
    """Yield a fleet with runs on three machines each, and one GPU in ten that nobody has."""
    start, end = now - 8 * DAY, now + DAY
    free = (Use(start, end),)
    for number in range(NODES):
        person, (state, busy) = f"person-{number % PEOPLE}", _STATES[number % len(_STATES)]
        used = (Use(start, end, state, person, f"{person}-run-{number % RUNS}", busy),)
        gpus = tuple(free if (number * GPUS + gpu) % 10 == 0 else used for gpu in range(GPUS))
        yield Machine(f"p5-{number}.us-west-2", "us-west-2", f"train-{number % 5}", 80.0, gpus)


def seconds(action: Callable[[], object]) -> float:
    """Return the median time of an action."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return median(times)


class Hub(FakeHub):
    """A hub without runs in its record, which notes how long Prometheus needs for each question."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.times: list[float] = []
        super().__init__(folder)
        for name in ("query", "query_range"):
            self.answers[f"/prometheus/api/v1/{name}"] = lambda: self._pass_on(store)
        self.answer("/api/2.0/mlflow/experiments/get-by-name", {"experiment": {"experiment_id": "7"}})
        self.answer("/api/2.0/mlflow/runs/search", {})

    def _pass_on(self, store: Store) -> tuple[int, dict[str, str], bytes]:
        begin = time.perf_counter()
        status, body = store.get(self.request.target.removeprefix("/prometheus"))
        self.times.append(time.perf_counter() - begin)
        return status, {"Content-Type": "application/json"}, body


def measure(folder: Path, store: Store) -> dict[str, float]:
    """Return the seconds of each command by its name."""
    times: dict[str, float] = {}
    with Hub(folder, store) as hub:
        laptop = Laptop(folder, hub, oldest_python())
        laptop.set(person="person-3")
        for name, words in (("bp top", ("top",)), ("bp top --all", ("top", "--all"))):
            assert "person-3-run-" in laptop.bp(*words).stdout
            hub.times.clear()
            times[name] = seconds(lambda words=words: laptop.bp(*words))  # type: ignore[misc]
            times[f"{name}: its questions"] = sum(hub.times) / REPEATS
    for name, query in (
        ("bedplate top", query_of(FLEET)),
        ("report idle", query_of(report_parts("person", 1))),
        ("report idle --week --by run", query_of(report_parts("run", 7))),
        ("peer: one sum", "sum(bedplate:gpu_busy)"),
    ):
        body = urlencode({"query": query}).encode()
        assert store.get("/api/v1/query", body)[0] == 200, name  # noqa: PLR2004  OK
        times[name] = seconds(lambda body=body: store.get("/api/v1/query", body))  # type: ignore[misc]
    return times


def main() -> Sequence[str]:
    """Print the times; return those above their limits."""
    remove_credentials(os.environ)
    now, pace = last_sample(time.time()), clock_pace()
    with TemporaryDirectory() as folder:
        samples = normalised(list(machines(now)), [now, now + STEP])
        for (name, _), values in samples.items():
            if not name.startswith("bedplate:gpu_"):
                # All runs go on for the whole week.
                values[:] = [(at, values[0][1]) for at in range(now - 7 * DAY - HOUR, now + 2 * STEP, STEP)]
        print(f"{len(samples):,} series")
        with store_of(Path(folder), samples) as store:
            times = measure(Path(folder), store)
    for name, value in times.items():
        print(f"{name}: {value:.3f} s, {value / times['peer: one sum']:.1f} x peer")
    limits = {"bp top: its questions": MAX_QUERIES_S, "bp top": MAX_FRAME_S, "bedplate top": MAX_FLEET_S}
    limits |= {"bp top --all: its questions": MAX_FLEET_S, "report idle --week --by run": MAX_WEEK_S}
    return [
        f"{name}: {times[name]:.3f} s, at most {most}" for name, most in limits.items() if times[name] > most * pace
    ]


if __name__ == "__main__":
    sys.exit("\n".join(main()))
