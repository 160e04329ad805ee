"""200 trials of the shipped example, 20 at a time, by `bp search` whose driver is killed twice, next to Optuna alone.

Driver, agents and trials are those of people, on one machine with a fake ssh and a stand-in for systemd. The example
learns from fewer points and sleeps in each epoch: a whole trial takes ten seconds. CPU time of a trial is that of the
driver with all that it starts, but units of trials and the stand-ins of systemd's programs.
Optuna alone gets the same trials and values. The full search runs each of the trials to its last epoch.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.testlab.fakes.runs import ROOT, wait_for
from tests.testlab.fakes.studies import SearchHub
from tests.testlab.run import pace, remove_credentials
from tests.unit.test_bp_run import FLEET
from tests.unit.test_bp_search import driver_of, laptop_of, machine_of_units

TRIALS, PARALLEL, EPOCHS, POINTS, KILLS = 200, 20, 27, 300, 2
MAX_CPU_S, MAX_STEPS, MIN_BEST = 0.4, 0.4, 0.99
# Seconds of an epoch besides its few points: a trial of all epochs takes ten.
PAUSE = 0.35
_COUNT = 'import atexit, time; atexit.register(lambda: open("{}", "a").write(f"{{time.process_time()}}\\n"))'
_NAME, _SECONDS, _PRINT = "ada-spirals", 3_000, 'print(f"epoch '
_ALONE = """
import json, optuna, sys, time
optuna.logging.set_verbosity(optuna.logging.ERROR)
space = json.loads(sys.argv[1])
study = optuna.create_study(direction="maximize", pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=3))
distributions = {
    "rate": optuna.distributions.FloatDistribution(1e-4, 1, log=True),
    "width": optuna.distributions.IntDistribution(*space),
    "momentum": optuna.distributions.FloatDistribution(0, 0.95),
}
for values in json.load(sys.stdin):
    trial = study.ask(distributions)
    for step, value in enumerate(values, 1):
        trial.report(value, step)
        trial.should_prune()
    study.tell(trial, values[-1])
print(time.process_time())
"""
_WIDTHS = (8, 24)


@dataclass
class Figures:
    """What was measured: seconds, and the share of the steps and of the best value of a full search."""

    seconds: float
    cpu: float
    pace: float
    alone: float
    steps: float
    best: float
    names: list[str]
    states: dict[str, int]

    @property
    def cpu_of_trial(self) -> float:
        """The seconds of CPU of a trial over Optuna alone, divided by the pace of this machine."""
        return (self.cpu - self.alone) / len(self.names) / self.pace

    @property
    def is_whole(self) -> bool:
        """Whether no trial is doubled or lost, and some were stopped early."""
        names = [f"{_NAME}-{number:04}" for number in range(len(self.names))]
        return self.names == names and {*self.states} == {"FINISHED", "KILLED"}

    @property
    def is_good(self) -> bool:
        """Whether the targets are met, too."""
        is_cheap = self.cpu_of_trial <= MAX_CPU_S and self.steps <= MAX_STEPS
        return self.is_whole and is_cheap and self.best >= MIN_BEST

    def __str__(self) -> str:
        """Return the figures as lines."""
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        cpu = f"{self.cpu_of_trial:.2f} s a trial over Optuna alone ({self.alone:.1f} s in all, pace {self.pace:.2f})"
        lines = [f"{len(self.names)} trials in {self.seconds:.0f} s: {states}"]
        lines += [f"CPU of the driver and what it starts: {cpu} (target: {MAX_CPU_S} s)"]
        lines += [f"steps of a full search: {self.steps:.0%} (target: {MAX_STEPS:.0%})"]
        lines += [f"best value of a full search: {self.best:.1%} (target: {MIN_BEST:.0%})"]
        return "\n".join(lines)


def measure(folder: Path, trials: int = TRIALS) -> Figures:
    """Search in a folder; return the figures."""
    with SearchHub(folder) as hub, machine_of_units(folder) as machine, laptop_of(hub, machine, folder) as laptop:
        hub.answer("/fleet.json", FLEET)
        # As for people.
        machine.environment["DRIVER_PAUSE"] = "2"
        for path in (folder / "bin/systemctl", folder / "bin/systemd-run"):
            first, _, rest = path.read_text().partition("\n")
            path.write_text("\n".join((first, _COUNT.format(folder / "stand-ins"), rest)))
        work, cpu, start = folder / "work", 0.0, time.monotonic()
        (work / "train.py").write_text(
            "import socket\nfind = socket.getaddrinfo\n"
            "socket.getaddrinfo = lambda host, *words, **more: find('127.0.0.1', *words, **more)\n"
            + (ROOT / "examples/search/train.py").read_text().replace(_PRINT, f"time.sleep({PAUSE}); {_PRINT}")
        )
        study = (ROOT / "examples/search/study.ini").read_text()
        words = {
            "trials = 40": f"trials = {trials}",
            "parallel = 4": f"parallel = {PARALLEL}",
            "cpus = 1\n": "cpus = 1\n",
        }
        words |= {"width = int 16 64": "width = int {} {}".format(*_WIDTHS), "cpus = 1": "cpus = 1\non = big"}
        words |= {"{momentum}": f"{{momentum}} --points {POINTS}"}
        for old, new in words.items():
            assert old in study, old
            study = study.replace(old, new)
        (work / "study.ini").write_text(study)
        big = {**FLEET["machines"]["small.cellar"], "cpus": PARALLEL}
        hub.answer("/fleet.json", {**FLEET, "machines": {"big.cellar": big}})
        previous = Path.cwd()
        os.chdir(work)
        try:
            process = laptop.start("search", "study.ini")
            for kill in range(1, KILLS + 1):
                least = kill * trials // (KILLS + 1)
                wait_for(lambda least=least: len(hub.tagged("study", _NAME)) >= least, _SECONDS)  # type: ignore[misc]
                pid = driver_of(folder)
                cpu += _cpu_of(pid)
                os.kill(pid, signal.SIGKILL)
            output, errors = process.communicate(timeout=_SECONDS)
        finally:
            os.chdir(previous)
        assert process.returncode == 0, output + errors
        cpu += float((folder / "cpu").read_text()) - sum(map(float, (folder / "stand-ins").read_text().split()))
        return _figures(hub.tagged("study", _NAME), time.monotonic() - start, cpu)


def _cpu_of(pid: int) -> float:
    """Return the seconds of CPU of a process and of its children that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _figures(runs: list[dict[str, Any]], seconds: float, cpu: float) -> Figures:
    values = [[float(row["value"]) for row in run["rows"]] for run in runs]
    states = [run["status"] for run in runs]
    command = (sys.executable, "-c", _ALONE, json.dumps(_WIDTHS))
    alone = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True).stdout
    with Pool() as pool:
        full = pool.map(_full, [run["params"] for run in runs])
    best = max(own[-1] for own, state in zip(values, states, strict=True) if state == "FINISHED")
    share = sum(map(len, values)) / (len(runs) * EPOCHS)
    counts = {state: states.count(state) for state in states}
    names = [str(run["run_name"]) for run in runs]
    return Figures(seconds, cpu, pace(), float(alone), share, best / max(full), names, counts)


def _full(params: dict[str, str]) -> float:
    """Return the value of a trial after its last epoch."""
    train = runpy.run_path(str(ROOT / "examples/search/train.py"))["train"]
    rate, width, momentum = float(params["rate"]), int(params["width"]), float(params["momentum"])
    return float([*train(rate, width, momentum, EPOCHS, POINTS)][-1])


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    remove_credentials(os.environ)
    with TemporaryDirectory() as folder:
        figures = measure(Path(folder))
    print(figures)
    print(f"load {os.getloadavg()[0]:.1f}")
    return int(not figures.is_good)


if __name__ == "__main__":
    sys.exit(main())
