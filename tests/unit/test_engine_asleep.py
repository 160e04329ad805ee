"""Machines that do not answer, beside others that do: a real process of the engine, real agents of this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from bedplate.nodes.event import Event, Kind, Step, event_of
from bedplate.nodes.order import Order, Target, write_order
from bedplate.plan.nodes import standing_nodes
from tests.support.declared import EXAMPLES, plan_of

SLEEPER, AWAKE = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))[:2]
ASLEEP = ("env", "ASLEEP=1", "sh", "-c")
NEVER_IN = ("sh", "-c", "exec sleep 600", "sh")
Engine = subprocess.Popen[bytes]


@contextmanager
def _engine(folder: Path, sleeping: tuple[str, ...], seconds: float) -> Iterator[Engine]:
    """Give the engine at work on one machine that sleeps and one that is awake; a question may take so long."""
    targets = (Target(SLEEPER, sleeping), Target(AWAKE, ("sh", "-c")))
    order = Order(targets, "ada", folder=str(folder / "run"), memory=str(folder / "memory"), check=True)
    program = (sys.executable, "-m", "tests.support.patched_shift", str(seconds))
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        write_order(cast("BinaryIO", engine.stdin), order)
        try:
            yield engine
        finally:
            engine.kill()


def _ends(engine: Engine) -> Iterator[Event]:
    """Yield how each machine ends, as soon as it does."""
    assert engine.stdout
    yield from (event for event in map(event_of, map(bytes.decode, engine.stdout)) if _is_end(event))


def _is_end(event: Event) -> bool:
    return event.step in (Step.DONE, Step.TROUBLE)


@pytest.mark.parametrize("sleeping", [ASLEEP, NEVER_IN], ids=["question", "login"])
def test_a_machine_that_does_not_answer_keeps_no_other_waiting(sleeping: tuple[str, ...], tmp_path: Path) -> None:
    """The one that is awake is done while the other still sleeps."""
    with _engine(tmp_path, sleeping, 500) as engine:
        first = next(_ends(engine))

    assert (first.node, first.step) == (AWAKE.name, Step.DONE)


def test_a_question_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A package manager that hangs, or a disk: the machine is told as one that does not answer."""
    with _engine(tmp_path, ASLEEP, 2) as engine:
        ends = {event.node: event for event in _ends(engine)}

    assert ends[SLEEPER.name].kind is Kind.UNREACHED
    assert "does not answer" in ends[SLEEPER.name].words
    assert "ps -ef" in ends[SLEEPER.name].fix
    assert ends[AWAKE.name].step is Step.DONE


@pytest.mark.parametrize("sleeping", [ASLEEP, NEVER_IN], ids=["question", "login"])
def test_who_stops_waits_for_no_machine_that_is_only_looked_at(sleeping: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing has changed on it, so that one Ctrl-C is enough."""
    with _engine(tmp_path, sleeping, 500) as engine:
        ends = _ends(engine)
        next(ends)
        assert engine.stdin
        engine.stdin.close()
        start = time.monotonic()
        last = next(ends)
        status = engine.wait()

    assert (last.node, last.kind, status) == (SLEEPER.name, Kind.STOPPED, 0)
    assert "before anything changed" in last.words
    assert time.monotonic() - start < 120
