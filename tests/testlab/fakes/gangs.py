"""Gangs of agents on this machine: a folder a node, one record, and checkpoints on a store that all nodes share."""

import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.testlab.fakes.runs import ARTIFACTS, AgentRun, RunHub, wait_for

TRAINER = Path(__file__).with_name("trainer.py")
ID = "ada-1127-brave-otter"


def pod_variables(run: AgentRun) -> dict[str, str]:
    """Return the variables of an agent in a pod, by what bp gives to one on a machine."""
    work = run.folder.parent / "pod"
    work.mkdir(exist_ok=True)
    facts = {name: run.given.get(name.lower(), "") for name in ("HUB", "RUN", "TREE", "GPUS", "GRACE", "ADDRESS")}
    facts |= {name: run.given.get(name.lower(), "") for name in ("RANK", "NODES", "MASTER", "PORT", "CHECKPOINTS")}
    facts |= {"CERT": run.folder / "certificate", "TOKEN_FILE": run.folder / "token", "WORK": work / "tree"}
    facts |= {"PACKS": ",".join(run.given["packs"]), "ARTIFACTS": ARTIFACTS, "MACHINE": run.given["machine"]}
    return {f"BEDPLATE_{name}": str(value) for name, value in facts.items()}


class AgentGang:
    """The agents of a run on so many nodes, each as a process. `given` is what bp gives to each."""

    def __init__(self, hub: RunHub, folder: Path, nodes: int, command: Sequence[str], **given: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.hub, self.checkpoints, self.port = hub, folder / "checkpoints", port
        shared = {"nodes": nodes, "master": "127.0.0.1", "port": port, "checkpoints": str(self.checkpoints)}
        self.nodes = [
            AgentRun(hub, folder / f"node-{node}" / ID, {"a": b""}, [*command], **{**shared, "rank": node, **given})
            for node in range(nodes)
        ]
        for node, run in enumerate(self.nodes):
            run.given["machine"] = f"machine-{node}"
            run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2, "_UPLOAD": 0.1}
        self.processes = list[subprocess.Popen[bytes]]()

    def start(self) -> None:
        """Start the agent of each node."""
        for node, run in enumerate(self.nodes):
            if not run.folder.exists():
                run.prepare()
            self.processes[node : node + 1] = [run.agent("run", "--folder", str(run.folder))]

    def codes(self) -> list[int]:
        """Wait for the ends of all agents; return their exit codes."""
        return [run.end_of(process) for run, process in zip(self.nodes, self.processes, strict=True)]

    def run(self) -> list[int]:
        """Run to the end."""
        self.start()
        return self.codes()

    def output(self, rank: int, attempt: int = 0) -> str:
        """Return the output of a rank in an attempt, as its folder has it."""
        parts = [part for run in self.nodes for part in sorted(run.folder.glob(f"logs/{attempt}/{rank}/*"))]
        return "".join(part.read_text(errors="replace") for part in parts)

    def log(self, rank: int, attempt: int = 0) -> str:
        """Return the same as the hub has it."""
        path = f"{ARTIFACTS}/logs/{attempt}/{rank}/"
        return b"".join(data for name, data in sorted(self.hub.files.items()) if name.startswith(path)).decode()

    def program_of(self, node: int) -> int:
        """Return the process of a node's program; 0 if there is none."""
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if path.readlink() == self.nodes[node].folder / "work":
                    return int(path.parent.name)
        return 0

    def wait_for_program(self, node: int) -> int:
        """Return the process of a node's program, once it is there: 0 would be the process group of a test."""
        wait_for(lambda: self.program_of(node))
        return self.program_of(node) or self.wait_for_program(node)


def trainer(steps: int, pause: float, every: int = 1) -> list[str]:
    """Return the command of the program that trains."""
    return [sys.executable, "-IS", str(TRAINER), str(steps), str(pause), str(every)]


def final_value(nodes: int, steps: int) -> int:
    """Return the value with which an uninterrupted training ends."""
    values = [1] * nodes
    for _ in range(steps):
        total = sum(value % 1009 * (rank + 3) for rank, value in enumerate(values))
        values = [total] * nodes
    return values[0]
