"""A line to the real agent, which this machine's own shell runs in folders of a test."""

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
from pyinfra.operations.util import any_changed

from bedplate.nodes.apply import Event, Order, Step, Target, event_of
from bedplate.plan.nodes import standing_nodes
from roles.base import Changes, Role
from roles.engine.connection import Line, Opening
from roles.engine.work import work_through
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

_HERE = ("sh", "-c")


def line_here(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> Line:
    """Return a line to this machine."""
    return Line("here", _HERE, opening(folder, lock, patience=patience))


def opening(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> Opening:
    """Return what the agent is told first: who asks, for which lock, and where it keeps what it knows."""
    return Opening(lock, "ada on her desk", patience, str(folder / "run"), str(folder / "memory"))


GATE, NAS = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))[:2]


@dataclass(frozen=True, slots=True)
class Notebook(Role):
    """A file, a service that reads it (a file that counts its starts), and a command that may fail."""

    folder: Path
    text: str = "one\n"
    failing: str = ""
    name: ClassVar[str] = "notebook"

    def install(self) -> None:
        """Make its folder."""
        files.directory(name="Folder", path=str(self.folder))

    def configure(self) -> Changes:
        """Write its file."""
        return [files.put(name="Settings", src=io.StringIO(self.text), dest=str(self.folder / "settings"))]

    def activate(self, changes: Changes) -> None:
        """Start it anew when its file has changed."""
        if self.failing:
            server.shell(name="A step between", commands=[self.failing], _if=any_changed(*changes))
        start = f"echo start >> {self.folder}/starts"
        server.shell(name="Start anew", commands=[start], _if=any_changed(*changes))


def order_of(folder: Path, *, check: bool = False, command: Sequence[str] = ("sh", "-c")) -> Order:
    """Return an order for one node, which is reached by a command."""
    targets = (Target(GATE, tuple(command)),)
    return Order(targets, "ada", check=check, folder=str(folder / "run"), memory=str(folder / "memory"))


def carried_out(order: Order, *roles: Role) -> list[Event]:
    """Carry out an order, and return all that was told but what is only for a live line."""
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        work_through(order, stays_open, out, lambda _: roles)
    events = [event_of(line) for line in out.getvalue().splitlines()]
    return [event for event in events if event.step not in (Step.OPENED, Step.BEGINS)]


def changes(events: list[Event]) -> list[str]:
    """Return the operations that changed something, or would."""
    return [event.name for event in events if event.step is Step.OPERATION]


def starts(folder: Path) -> int:
    """Return how often the notebook's service was started."""
    path = folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


_ROLES = Path(__file__).parents[3] / "roles"


def loaded(program: str) -> ModuleType:
    """Return a program by its way from `roles`, read anew each time."""
    path = _ROLES / program
    loader = importlib.machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
