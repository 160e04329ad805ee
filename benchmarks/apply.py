"""`bedplate node apply` beside ansible-core, on machines made alike, with the same tasks, in the same run.

Needs root and Ansible's own environment (.venv-peers, `make bench` makes it). Neither waits for apt's downloads: lists
are fresh and packages lie in the cache. First one machine each, ours and theirs in turn; then BENCH_NODES at once (10
where it is left out), ours, and when those are gone as many of theirs. Beside seconds by the clock stand those of the
processor, of who applies and of the machines together: other work here has no part in them. Ends with 1 where a bar is
missed by the clock.
"""

import json
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.declared import EXAMPLES
from tests.support.stand.stand import Stand

ROOT = Path(__file__).parents[1]
ANSIBLE = ROOT / ".venv-peers/bin/ansible-playbook"
LAB = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")
CROWD = int(os.environ.get("BENCH_NODES", "10"))
BAR = 0.5
_SECONDS = 3000
_READY = (
    "apt-get update --quiet=2 && mkdir -p /var/lib/apt/periodic && touch /var/lib/apt/periodic/update-success-stamp"
)
# The times of each process and of those that it has waited for: proc(5), stat.
_TICKS = "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk '{ sum += $12 + $13 + $14 + $15 } END { print sum }'"


@dataclass(frozen=True, slots=True)
class Cost:
    """What an apply took, in seconds by the clock and of the processor."""

    clock: float
    processor: float


@dataclass(frozen=True, slots=True)
class Bench:
    """A stand with machines that are ready, and the two ways to apply."""

    stand: Stand
    folder: Path

    def boot(self, names: Sequence[str]) -> None:
        """Boot machines, and let them know what packages there are."""
        for name in names:
            self.stand.boot(name, _address(name)).run(_READY, seconds=600)

    def ours(self, names: Sequence[str]) -> Cost:
        """Apply by the product's own command line."""
        way = ("--fleet", str(self.folder / "fleet.yaml"), "--ssh-config", str(self.stand.ssh_config))
        return self._cost(names, sys.executable, "-m", "bedplate", "node", "apply", *names, *way)

    def theirs(self, names: Sequence[str]) -> Cost:
        """Apply by the playbook, all machines side by side."""
        one = ("--inventory", f"{','.join(names)},", "--forks", str(CROWD), str(self.folder / "play.yaml"))
        return self._cost(names, str(ANSIBLE), *one, env=_own(self.stand))

    def write_playbook(self, name: str) -> int:
        """Write the playbook, as such a machine needs it that is fresh; return how many tasks it has."""
        config = str(self.stand.ssh_config)
        text = self._run(sys.executable, "-m", "benchmarks.playbook", str(self.folder / "fleet.yaml"), name, config)
        (self.folder / "play.yaml").write_text(text)
        (only,) = json.loads(text)
        return len(only["tasks"])

    def _cost(self, names: Sequence[str], *argv: str, env: dict[str, str] | None = None) -> Cost:
        began, used = time.monotonic(), self._processor(names)
        self._run(*argv, env=env)
        return Cost(time.monotonic() - began, self._processor(names) - used)

    def _processor(self, names: Sequence[str]) -> float:
        here = resource.getrusage(resource.RUSAGE_CHILDREN)
        there = sum(int(self.stand.nodes[name].run(_TICKS)) for name in names) / os.sysconf("SC_CLK_TCK")
        return here.ru_utime + here.ru_stime + there

    def _run(self, *argv: str, env: dict[str, str] | None = None) -> str:
        done = self.stand.desk.run("env", "--chdir", str(ROOT), *argv, env=env, seconds=_SECONDS)
        if done.returncode:
            sys.exit(f"{argv}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout


def main() -> None:
    """Measure, and print a row a figure."""
    with tempfile.TemporaryDirectory(prefix="bedplate-bench-") as name:
        folder = Path(name)
        _write_fleet(folder)
        good = [*_one_machine(folder), *_crowd(folder)]
    sys.exit(0 if all(good) else 1)


def _one_machine(folder: Path) -> list[bool]:
    mine, other = _names(1, 1), _names(2, 1)
    with Stand() as stand:
        bench = Bench(stand, folder)
        bench.boot((*mine, *other))
        print(f"a playbook of {bench.write_playbook(other[0])} tasks", flush=True)
        first = _row("first apply", bench.ours(mine), bench.theirs(other))
        return [first, _row("second apply, no change", bench.ours(mine), bench.theirs(other))]


def _crowd(folder: Path) -> list[bool]:
    names = _names(1, CROWD)
    with Stand() as stand:
        bench = Bench(stand, folder)
        bench.boot(names)
        ours = [bench.ours(names), bench.ours(names)]
    with Stand() as stand:
        bench = Bench(stand, folder)
        bench.boot(names)
        theirs = [bench.theirs(names), bench.theirs(names)]
    what = (f"first apply, {CROWD} machines at once", f"second apply, {CROWD} machines at once")
    return [_row(*each) for each in zip(what, ours, theirs, strict=True)]


def _row(what: str, ours: Cost, theirs: Cost) -> bool:
    """Print a figure; return whether it keeps its bar."""
    clock, processor = ours.clock / theirs.clock, ours.processor / theirs.processor
    print(
        f"{what}: bedplate {ours.clock:.1f} s, ansible {theirs.clock:.1f} s, ratio {clock:.2f} (bar: {BAR:.2f});"
        f" of the processor {ours.processor:.1f} s, {theirs.processor:.1f} s, ratio {processor:.2f}",
        flush=True,
    )
    return clock <= BAR


def _names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"bench-{number}.cellar" for number in range(first, first + count))


def _address(name: str) -> str:
    return f"192.168.41.{re.findall(r'[0-9]+', name)[0]}"


def _write_fleet(folder: Path) -> None:
    """Write the lab's file with as many workbenches as there are machines."""
    names = _names(1, max(2, CROWD))
    more = "".join(f"\n      {name.partition('.')[0]}: {{address: {_address(name)}, use: ssh}}" for name in names)
    (folder / "fleet.yaml").write_text(LAB.replace("    machines:", f"    machines:{more}", 1))


def _own(stand: Stand) -> dict[str, str]:
    """Return Ansible's settings: its own speed-up (pipelining) is on, and its connections are kept as it does."""
    return {
        **os.environ,
        "ANSIBLE_SSH_ARGS": f"-F {stand.ssh_config} -C -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "LC_ALL": "C.UTF-8",
    }


if __name__ == "__main__":
    main()
