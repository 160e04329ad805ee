"""The memory of `bedplate node apply` for 50 machines, against its bar; whose connections are simulated.

The far ends are agents on one booted machine, which are not counted; for each connection an idle `ssh` is, by its share
of memory (Pss), as one runs here. Each of the 50 is looked at by all its roles to the end, as `--check` does. As root.
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
from bedplate.cli.fleet import opened, planned
from bedplate.nodes.apply import Engine, Order, Step, Target, working
from bedplate.plan.nodes import node_of
from tests.testlab.machines.stand import NodeLab

MANY, BAR = 50, 300
LAB = Path(__file__).parents[1] / "examples/lab.yaml"
_MIB = 1024


def main() -> None:
    """Measure, and print one figure; ends with 1 where the bar is missed."""
    command, work, lines = _command(), _work(), _lines()
    told = f"{command:.0f} MiB the command, {work:.0f} the process that works, {lines:.0f} ssh"
    whole = command + work + lines
    print(f"apply of {MANY} machines: {whole:.0f} MiB: {told} (bar: {BAR})")
    sys.exit(0 if whole <= BAR else 1)


def _work() -> float:
    """Return the most that the process that works ever held."""
    node = node_of(planned(opened(LAB)), "titan-03.cellar", load_catalog())
    with NodeLab() as stand:
        way = stand.boot(node.name, str(node.address)).machine.console()
        targets = tuple(Target(replace(node, name=f"many-{number}.cellar"), way) for number in range(MANY))
        with working(Order(targets, "bench", check=True)) as engine:
            return _most(engine)


def _most(engine: Engine) -> float:
    """Return the most that a process held until it was done with every machine."""
    most, done = 0.0, 0
    for event in engine.events():
        if event.step is Step.TROUBLE:
            sys.exit(f"{event.node}: {event.words}")
        done += event.step is Step.DONE
        most = max(most, _figure(Path(f"/proc/{engine.pid}/status"), "VmHWM"))
    if done != MANY:
        sys.exit(f"{done} of {MANY} were looked at to the end")
    return most


def _command() -> float:
    """Return what a command holds that has planned the fleet and shows what happens."""
    import bedplate.cli.node_apply  # noqa: F401, PLC0415  what `node apply` has loaded by then

    planned(opened(LAB))
    return _figure(Path("/proc/self/status"), "VmHWM")


def _lines() -> float:
    """Return what the connections' ssh processes hold together while they wait for a server that says nothing."""
    with _silent_server() as port:
        command = ("ssh", "-F", "none", "-o", "BatchMode=yes", "-p", str(port), "127.0.0.1", "true")
        every = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(MANY)]
        time.sleep(3)
        held = sum(_figure(Path(f"/proc/{ssh.pid}/smaps_rollup"), "Pss") for ssh in every)
        for ssh in every:
            ssh.kill()
            ssh.wait()
    return held


@contextmanager
def _silent_server() -> Iterator[int]:
    import socket  # noqa: PLC0415  for this figure alone

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _figure(file: Path, name: str) -> float:
    return int(re.findall(rf"^{name}:\s+(\d+)", file.read_text(), re.MULTILINE)[0]) / _MIB


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1795262400")
    main()
