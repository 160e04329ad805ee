"""The memory of `bedplate node apply` for 50 nodes with simulated connections, compared with its target.

Needs root. The agents of all nodes run on one booted machine and are not counted. For each connection, the memory
(Pss) of an idle `ssh` process is added. All roles check each node, as with `--check`.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.cli.options import Terminal
from bedplate.nodes.apply import ApplyProcess, ApplyRequest, Step, Target, run_apply
from bedplate.operate import open_fleet, plan_loaded
from bedplate.plan.nodes import find_node
from tests.testlab.machines.node_lab import NodeLab

NODES, TARGET_MIB = 50, 300
LAB = Path(__file__).parents[1] / "examples/lab.yaml"
_MIB = 1024


def main() -> None:
    """Measure, and print one figure; exit with 1 if the target is missed."""
    command, worker, ssh = _command_memory(), _worker_memory(), _ssh_memory()
    total = command + worker + ssh
    parts = f"{command:.0f} MiB command, {worker:.0f} MiB worker, {ssh:.0f} MiB ssh"
    print(f"apply of {NODES} nodes: {total:.0f} MiB: {parts} (target: {TARGET_MIB})")
    sys.exit(0 if total <= TARGET_MIB else 1)


def _worker_memory() -> float:
    """Return the peak memory of the process that runs the roles, in MiB."""
    node = find_node(plan_loaded(open_fleet(Terminal(LAB))), "titan-03.cellar", load_catalog())
    with NodeLab() as node_lab:
        way = node_lab.boot(node.name, str(node.address)).machine.console()
        targets = tuple(Target(replace(node, name=f"many-{number}.cellar"), way) for number in range(NODES))
        with run_apply(ApplyRequest(targets, "bench", check=True)) as engine:
            return _peak_memory(engine)


def _peak_memory(engine: ApplyProcess) -> float:
    """Return the peak memory of a process until it has checked every node, in MiB."""
    peak, done = 0.0, 0
    for event in engine.events():
        if event.step is Step.ERROR:
            sys.exit(f"{event.node}: {event.words}")
        done += event.step is Step.DONE
        peak = max(peak, _mebibytes(Path(f"/proc/{engine.pid}/status"), "VmHWM"))
    if done != NODES:
        sys.exit(f"only {done} of {NODES} nodes were checked")
    return peak


def _command_memory() -> float:
    """Return the memory of a command that has planned the fleet and shows events, in MiB."""
    import bedplate.operate.apply  # noqa: F401, PLC0415  the modules that `node apply` has loaded by then

    plan_loaded(open_fleet(Terminal(LAB)))
    return _mebibytes(Path("/proc/self/status"), "VmHWM")


def _ssh_memory() -> float:
    """Return the memory of all ssh processes while they wait for a silent server, in MiB."""
    with _silent_server() as port:
        command = ("ssh", "-F", "none", "-o", "BatchMode=yes", "-p", str(port), "127.0.0.1", "true")
        processes = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(NODES)
        ]
        time.sleep(3)
        total = sum(_mebibytes(Path(f"/proc/{ssh.pid}/smaps_rollup"), "Pss") for ssh in processes)
        for ssh in processes:
            ssh.kill()
            ssh.wait()
    return total


@contextmanager
def _silent_server() -> Iterator[int]:
    import socket  # noqa: PLC0415  only used here

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _mebibytes(file: Path, name: str) -> float:
    return int(re.findall(rf"^{name}:\s+(\d+)", file.read_text(), re.MULTILINE)[0]) / _MIB


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1795262400")
    main()
