"""A connection to the real agent on this machine, in folders of a test, and a small role to apply over it."""

import importlib.machinery
import importlib.util
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from pyinfra.operations import files, server

from bedplate.nodes.apply import ApplyRequest, Event, Step, Target, parse_event
from bedplate.plan.nodes import permanent_nodes
from roles.base import Changes, Role, changed
from roles.engine.connection import AgentOptions, Connection
from roles.engine.node_run import run_request
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

_SHELL = ("sh", "-c")


def connect(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> Connection:
    """Return a connection to an agent on this machine."""
    return Connection("here", _SHELL, agent_options(folder, lock, patience=patience))


def agent_options(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> AgentOptions:
    """Return the agent's options, with its folders in a folder of the test."""
    return AgentOptions(lock, "ada on laptop-1", patience, str(folder / "run"), str(folder / "memory"))


GATE, NAS = permanent_nodes(plan_of(EXAMPLES / "lab.yaml"))[:2]


@dataclass(frozen=True, slots=True)
class Notebook(Role):
    """A file, a service that reads it (each start adds a line to a file), and a command that may fail."""

    folder: Path
    text: str = "one\n"
    failing: str = ""
    name: ClassVar[str] = "notebook"

    def install(self) -> None:
        """Create the folder."""
        files.directory(name="Create folder", path=str(self.folder))

    def configure(self) -> Changes:
        """Write the file."""
        path = str(self.folder / "settings")
        return {path: files.put(name="Write settings", src=io.StringIO(self.text), dest=path)}

    def activate(self, changes: Changes) -> None:
        """Restart the service after a change of its file."""
        if self.failing:
            server.shell(name="Run step", commands=[self.failing], _if=changed(changes))
        start = f"echo start >> {self.folder}/starts"
        server.shell(name="Restart service", commands=[start], _if=changed(changes))


def order_of(folder: Path, *, check: bool = False, command: Sequence[str] = _SHELL) -> ApplyRequest:
    """Return an order for one node, which a command reaches."""
    targets = (Target(GATE, tuple(command)),)
    return ApplyRequest(targets, "ada", check=check, folder=str(folder / "run"), memory=str(folder / "memory"))


def run_order(order: ApplyRequest, *roles: Role) -> list[Event]:
    """Run an order and return its events, without those for a progress display."""
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        run_request(order, stays_open, out, lambda _: roles)
    events = [parse_event(line) for line in out.getvalue().splitlines()]
    return [event for event in events if event.step not in (Step.OPENED, Step.BEGINS)]


def changes(events: list[Event]) -> list[str]:
    """Return the operations that changed something, or would."""
    return [event.name for event in events if event.step is Step.OPERATION]


def starts(folder: Path) -> int:
    """Return how often the notebook's service was started."""
    path = folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


_ROLES = Path(__file__).parents[3] / "roles"


def load_program(program: str) -> ModuleType:
    """Return a program below roles/ as a new module."""
    path = _ROLES / program
    loader = importlib.machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
