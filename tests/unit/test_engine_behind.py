"""What fails of an order that nothing else waits for: told at its end, with all the rest done."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyinfra.operations import server

from bedplate.nodes.event import Event, Kind, Step, event_of
from bedplate.nodes.order import Order, Target
from bedplate.plan.nodes import standing_nodes
from roles.base import NO_CHANGES, Changes, Role
from roles.engine.shift import work_through
from tests.support.declared import EXAMPLES, plan_of

GATE = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))[0]


@dataclass(frozen=True, slots=True)
class Errands(Role):
    """One that fails while a file is missing, and one after it."""

    folder: Path
    name: ClassVar[str] = "errands"

    def install(self) -> None:
        """Fail, and go on."""
        server.shell(name="Aside", commands=[f"test -e {self.folder}/mended || exit 1"], _ignore_errors=True)
        server.shell(name="After", commands=[f"echo once >> {self.folder}/after"])

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def told(folder: Path) -> list[Event]:
    """Carry the order out on a node, and return what was told of its work."""
    order = Order((Target(GATE, ("sh", "-c")),), "ada", folder=str(folder / "run"), memory=str(folder / "memory"))
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        work_through(order, stays_open, out, lambda _: (Errands(folder),))
    return [event_of(line) for line in out.getvalue().splitlines()]


def test_a_failure_that_nothing_waits_for_is_told_at_the_end(tmp_path: Path) -> None:
    """The rest is done by then; the node has failed until the next apply finds it mended."""
    first = told(tmp_path)
    done = (tmp_path / "after").read_text()
    left = (tmp_path / "memory").rglob("*")
    unfinished = [line for path in left if path.is_file() for line in path.read_text().splitlines()]
    (tmp_path / "mended").touch()
    second = told(tmp_path)

    assert done == "once\n"
    assert unfinished == ["Aside"]
    assert (first[-1].step, first[-1].kind) == (Step.TROUBLE, Kind.FAILED)
    assert first[-1].words == "Aside: it failed without a word"
    assert second[-1].step is Step.DONE
