"""Orders carried out by real agents of this machine, in folders of a test, with a role that is a notebook."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyinfra.operations import files, server
from pyinfra.operations.util import any_changed

from bedplate.nodes.event import Event, Step, event_of
from bedplate.nodes.order import Order, Target
from bedplate.plan.nodes import standing_nodes
from roles.base import Changes, Role
from roles.engine.shift import work_through
from tests.support.declared import EXAMPLES, plan_of

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
