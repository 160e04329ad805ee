"""`bedplate node apply` compared with plain pyinfra: the same roles and equal machines, in the same run.

Needs root. It measures the first apply of a fresh machine and a second one without changes, then the same with
bedplate for BENCH_NODES machines at once (10 by default). Packages come from apt's cache. pyinfra keeps one SSH
connection open, as ControlMaster does. The exit status is 1 if bedplate takes longer. Elapsed times depend on the load,
so CPU seconds are printed, too: those of the operator's machine and of all nodes together.
"""

import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_plan
from tests.testlab.machines.container import mounted
from tests.testlab.machines.lab import write_recorded_fleet
from tests.testlab.machines.layers import baked, run_in_root
from tests.testlab.machines.node_lab import NodeLab

ROOT = Path(__file__).parents[1]
MANY = int(os.environ.get("BENCH_NODES", "10"))
SECONDS = 3000
_FRESH_LISTS = (
    "apt-get update --quiet=2 && mkdir -p /var/lib/apt/periodic && touch /var/lib/apt/periodic/update-success-stamp"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Elapsed seconds, and CPU seconds of the operator's machine and of all nodes."""

    elapsed: float
    processor: float

    def __str__(self) -> str:
        return f"{self.elapsed:.1f} s ({self.processor:.1f} s CPU)"


@dataclass(frozen=True, slots=True)
class Machines:
    """Booted machines and the fleet file that declares them."""

    node_lab: NodeLab
    fleet: Path
    names: Sequence[str]

    def bedplate(self) -> None:
        """Apply with bedplate."""
        options = ("--fleet", str(self.fleet), "--ssh-config", str(self.node_lab.ssh_config), "--json")
        self._run(sys.executable, "-m", "bedplate", "node", "apply", *self.names, *options)

    def pyinfra(self) -> None:
        """Apply with pyinfra, and confirm the packet filter as in docs/nodes.md."""
        limits = [option for name in self.names for option in ("--limit", name)]
        data = ("--data", f"ssh_config_file={self.node_lab.ssh_config}")
        command = str(Path(sys.executable).with_name("pyinfra"))
        self._run(command, "-y", "roles/inventory.py", "roles/deploy.py", *limits, *data)
        for name in self.names:
            self.node_lab.nodes[name].ssh("sudo bedplate-trial confirm")

    def cost(self, apply: Callable[[], None]) -> Cost:
        """Measure one apply."""
        started, used = time.monotonic(), self._processor()
        apply()
        return Cost(time.monotonic() - started, self._processor() - used)

    def _processor(self) -> float:
        local = resource.getrusage(resource.RUSAGE_CHILDREN)
        return local.ru_utime + local.ru_stime + sum(self.node_lab.nodes[name].cpu_seconds() for name in self.names)

    def _run(self, *argv: str) -> None:
        environment = {**os.environ, "BEDPLATE_FLEET": str(self.fleet)}
        result = self.node_lab.workstation.run("env", "--chdir", str(ROOT), *argv, env=environment, seconds=SECONDS)
        if result.returncode:
            sys.exit(f"{argv}: {result.returncode}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")


def main() -> None:
    """Measure, and print one row for each figure."""
    with tempfile.TemporaryDirectory(prefix="bedplate-bench-") as name:
        folder = Path(name)
        layers = _fresh_layers(folder)
        ours, peers = (_measure(1, layers, apply) for apply in (Machines.bedplate, Machines.pyinfra))
        pairs = list(zip(("first apply", "second apply, no change"), ours, peers, strict=True))
        for title, own, peer in pairs:
            print(f"{title}: bedplate {own}, pyinfra {peer}, ratio {own.elapsed / peer.elapsed:.2f}", flush=True)
        first, second = _measure(MANY, layers, Machines.bedplate)
        print(f"{MANY} machines at once, bedplate: first apply {first}, second apply {second}")
    sys.exit(1 if any(own.elapsed > peer.elapsed for _, own, peer in pairs) else 0)


def _measure(count: int, layers: tuple[Path, ...], apply: Callable[[Machines], None]) -> tuple[Cost, Cost]:
    """Return the cost of the first and of the second apply of fresh machines."""
    names = _names(count)
    with NodeLab(layers) as node_lab:
        for name in names:
            node_lab.boot(name, _address(name))
        machines = Machines(node_lab, _write_fleet(node_lab.folder, node_lab.public), names)
        return machines.cost(lambda: apply(machines)), machines.cost(lambda: apply(machines))


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"bench-{number}.cellar" for number in range(1, count + 1))


def _address(name: str) -> str:
    return f"192.168.41.{re.findall(r'[0-9]+', name)[0]}"


def _write_fleet(folder: Path, key: str) -> Path:
    """Write examples/lab.yaml with a workbench for each machine and a key of its administrator; record its plan."""
    fleet = write_recorded_fleet(folder, key)
    text = fleet.read_text(encoding="utf-8")
    more = "".join(
        f"\n      {name.partition('.')[0]}: {{address: {_address(name)}, use: ssh}}" for name in _names(MANY)
    )
    fleet.write_text(text.replace("    machines:", f"    machines:{more}", 1), encoding="utf-8")
    record_plan(lock_path(fleet), load_fleet(fleet, load_catalog()).fleet, load_catalog())
    return fleet


def _fresh_layers(folder: Path) -> tuple[Path, ...]:
    """Return the layers of a machine with current package lists and a filled package cache."""
    below = baked()
    with mounted(below, folder / "fresh") as whole:
        run_in_root(whole, "sh", "-ec", _FRESH_LISTS)
    return (folder / "fresh/upper", *below)


if __name__ == "__main__":
    main()
