"""`bedplate-metrics [--gpus] [MOUNT ...]`: run all collectors every 15 s, and replace the file of metrics.

Each collector has a thread and a time limit. One that fails or hangs delays no other, and leaves no sample.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from threading import Thread

from ..gate.machine import Machine
from ..program import ProgramError
from .gpus import Gpus, KernelLog, Owners
from .system import Sample, collect_ages, collect_efa, collect_mounts

METRICS = Path("/var/lib/prometheus/node-exporter/bedplate-metrics.prom")
_PERIOD, _LIMIT = 15.0, 12.0
# Seconds for a program that asks a mount. nvidia-smi and journalctl get as long: the gate's machine gives them twice.
_SECONDS = 5.0
# Samples of a collector: a machine with eight GPUs and many owners has about a hundred.
_MOST = 2000
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Collector:
    """A source of samples by name."""

    def __init__(self, name: str, collect: Callable[[], Iterable[Sample]]) -> None:
        self.name, self._collect = name, collect
        self._thread: Thread | None = None
        self._samples: Sequence[Sample] = ()
        self.error = ""

    def start(self) -> None:
        """Start to collect, unless the last time has not ended yet."""
        if self._thread is None or not self._thread.is_alive():
            self._samples, self.error = (), ""
            self._thread = Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()

    def finish(self, end: float) -> Sequence[Sample]:
        """Return the samples, none after an error or the end of the time."""
        if self._thread:
            self._thread.join(max(0.0, end - time.monotonic()))
            if self._thread.is_alive():
                self.error = "did not end in time"
        return () if self.error else self._samples

    def _work(self) -> None:
        try:
            self._samples = list(islice(self._collect(), _MOST + 1))
            if len(self._samples) > _MOST:
                self.error = f"more than {_MOST} samples"
        except Exception as error:  # noqa: BLE001  any defect of a collector
            self.error = str(error) if isinstance(error, ProgramError) else f"{type(error).__name__}: {error}"


def collect_all(collectors: Sequence[Collector], limit: float = _LIMIT) -> Iterator[Sample]:
    """Yield the samples of all collectors, and for each whether it has answered."""
    for collector in collectors:
        collector.start()
    end = time.monotonic() + limit
    for collector in collectors:
        yield from collector.finish(end)
        yield "bedplate_collector_ok", {"collector": collector.name}, float(not collector.error)
    yield "bedplate_collect_time_seconds", {}, time.time()


def exposition(samples: Iterable[Sample]) -> str:
    """Return samples in the text format of Prometheus, in which those of a name are together."""
    lines = list[str]()
    for name, group in groupby(sorted(samples, key=lambda sample: sample[0]), key=lambda sample: sample[0]):
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        for _, labels, value in group:
            pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
            lines.append(f"{name}{{{pairs}}} {value!r}" if pairs else f"{name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def write(file: Path, text: str) -> None:
    """Replace the file of metrics; none stays if that fails. It is not synced: the next one comes soon."""
    new = file.with_suffix(".new")
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)
        new.replace(file)
    except OSError as error:
        file.unlink(missing_ok=True)
        sys.stderr.write(f"error: cannot write {file}: {error.strerror}\n")


def collectors_of(machine: Machine, mounts: Sequence[str], *, has_gpus: bool) -> Iterator[Collector]:
    """Yield the collectors of a machine."""
    yield Collector("ages", lambda: collect_ages(machine))
    yield Collector("efa", lambda: collect_efa(machine))
    yield Collector("mounts", lambda: collect_mounts(machine, mounts))
    if has_gpus:
        impatient = replace(machine, timeout=machine.timeout / 2)
        gpus, log = Gpus(impatient), KernelLog(impatient)
        owners = Owners(impatient, gpus)
        yield Collector("gpus", gpus.collect)
        yield Collector("owners", owners.collect_holders)
        yield Collector("users", owners.collect_users)
        yield Collector("kernel", lambda: log.collect(gpus))


def main() -> None:
    """Collect for ever. An error of a collector is printed once."""
    parser = argparse.ArgumentParser(prog="bedplate-metrics", description="Write metrics for the node exporter.")
    parser.add_argument("--gpus", action="store_true", help="collect metrics of GPUs")
    parser.add_argument("mounts", nargs="*", metavar="MOUNT", help="mount points that must answer")
    options = parser.parse_args()
    collectors = list(collectors_of(Machine(timeout=_SECONDS), options.mounts, has_gpus=options.gpus))
    printed: dict[str, str] = {}
    while True:
        start = time.monotonic()
        write(METRICS, exposition(collect_all(collectors)))
        errors = {collector.name: collector.error for collector in collectors}
        for name, error in errors.items():
            if error and error != printed.get(name):
                sys.stderr.write(f"{name}: {error}\n")
        printed = errors
        time.sleep(max(0.0, start + _PERIOD - time.monotonic()))


if __name__ == "__main__":
    main()
