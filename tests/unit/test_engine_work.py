"""An order carried out: roles of a test, pyinfra's own operations, real agents of this machine in a test's folders."""

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from pyinfra.operations import files, server
from pyinfra.operations.util import any_changed

from bedplate.nodes.event import Event, Kind, Step, event_of
from bedplate.nodes.order import Order, Target
from bedplate.plan.node import NodePlan
from bedplate.plan.nodes import standing_nodes
from roles.base import Changes, Role
from roles.engine import connector, room
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


def _order(folder: Path, *nodes: NodePlan, check: bool = False, command: Sequence[str] = ("sh", "-c")) -> Order:
    targets = tuple(Target(node, tuple(command)) for node in nodes or (GATE,))
    return Order(targets, "ada", check=check, folder=str(folder / "run"), memory=str(folder / "memory"))


def _told(order: Order, *roles: Role) -> list[Event]:
    """Carry out an order, and return all that was told but what is only for a live line."""
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        work_through(order, stays_open, out, lambda _: roles)
    events = [event_of(line) for line in out.getvalue().splitlines()]
    return [event for event in events if event.step not in (Step.OPENED, Step.BEGINS)]


def _names(events: list[Event]) -> list[str]:
    return [event.name for event in events if event.step is Step.OPERATION]


def _starts(folder: Path) -> int:
    path = folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_an_apply_makes_it_so_and_a_second_changes_nothing(tmp_path: Path) -> None:
    """What is as it ought to be is left alone, restarts included."""
    folder = tmp_path / "node"

    first = _told(_order(tmp_path), Notebook(folder))
    second = _told(_order(tmp_path), Notebook(folder))

    assert _names(first) == ["Folder", "Settings", "Start anew"]
    assert (first[-1].step, first[-1].changed, first[-1].unchanged) == (Step.DONE, 3, 0)
    assert _names(second) == []
    assert (second[-1].changed, second[-1].unchanged) == (0, 3)
    assert _starts(folder) == 1


def test_a_check_says_exactly_what_an_apply_then_does(tmp_path: Path) -> None:
    """What only answers a change is foretold with the change, and not without it."""
    folder = tmp_path / "node"
    foretold = _names(_told(_order(tmp_path, check=True), Notebook(folder)))
    untouched = not folder.exists()
    done = _names(_told(_order(tmp_path), Notebook(folder)))

    after = _told(_order(tmp_path, check=True), Notebook(folder))

    assert untouched
    assert foretold == done
    assert _names(after) == []


def test_what_a_failure_left_undone_is_done_by_the_next_apply(tmp_path: Path) -> None:
    """The file is as it ought to be by then, and what reads it is started all the same."""
    folder = tmp_path / "node"
    failed = _told(_order(tmp_path), Notebook(folder, failing="echo no >&2; exit 1"))
    foretold = _names(_told(_order(tmp_path, check=True), Notebook(folder)))

    second = _told(_order(tmp_path), Notebook(folder))
    third = _told(_order(tmp_path), Notebook(folder))

    assert (failed[-1].step, failed[-1].kind, failed[-1].words) == (Step.TROUBLE, Kind.FAILED, "A step between: no")
    assert foretold == _names(second) == ["Start anew"]
    assert _names(third) == []
    assert _starts(folder) == 1


@pytest.mark.parametrize(("number", "moment"), [(1, "after"), (2, "before"), (2, "after"), (3, "before")])
def test_a_line_cut_at_any_operation_is_made_good(number: int, moment: str, tmp_path: Path) -> None:
    """Wherever it is cut, the second apply ends where one whole apply would have, and the third changes nothing."""
    node = Notebook(tmp_path / "node")
    cutting = (sys.executable, "-m", "tests.support.cut_line", str(number), moment)

    cut = _told(_order(tmp_path, command=cutting), node)
    second = _told(_order(tmp_path), node)
    third = _told(_order(tmp_path), node)

    assert (cut[-1].step, cut[-1].kind) == (Step.TROUBLE, Kind.CUT)
    assert second[-1].step is Step.DONE
    assert (tmp_path / "node/settings").read_text() == "one\n"
    assert _starts(tmp_path / "node") >= 1
    assert _names(third) == []


def test_what_was_cut_in_one_role_is_not_forgotten_by_an_apply_of_another(tmp_path: Path) -> None:
    """A whole apply that failed left a start due; an apply of another role alone ends well, and it is due still."""

    @dataclass(frozen=True, slots=True)
    class Diary(Notebook):
        name: ClassVar[str] = "diary"

        def install(self) -> None:
            files.directory(name="Folder of diaries", path=str(self.folder))

        def configure(self) -> Changes:
            return ()

    notebook, diary = Notebook(tmp_path / "node"), Diary(tmp_path / "other")
    _told(_order(tmp_path), Notebook(tmp_path / "node", failing="exit 1"), diary)
    diary.folder.rmdir()
    alone = _told(replace(_order(tmp_path), only=frozenset({"diary"})), notebook, diary)

    after = _told(_order(tmp_path), notebook, diary)
    last = _told(_order(tmp_path), notebook, diary)

    assert _names(alone) == ["Folder of diaries"]
    assert _names(after) == ["Start anew"]
    assert _names(last) == []


def test_one_node_s_end_is_not_the_others(tmp_path: Path) -> None:
    """A node that is not reached is named, and the others are done."""
    order = Order(
        (
            Target(GATE, ("sh", "-c", "echo 'Connection refused' >&2; exit 255")),
            Target(NAS, ("sh", "-c")),
        ),
        "ada",
        folder=str(tmp_path / "run"),
        memory=str(tmp_path / "memory"),
    )

    events = {event.node: event for event in _told(order, Notebook(tmp_path / "node"))}

    assert events[GATE.name].kind is Kind.UNREACHED
    assert events[NAS.name].step is Step.DONE


def test_a_package_manager_that_is_busy_is_waited_for(tmp_path: Path) -> None:
    """Whoever installs packages beside us ends some time."""
    refused = "echo 'E: Could not get lock /var/lib/dpkg/lock' >&2; exit 100"
    busy = f"test -e {tmp_path}/free || {{ touch {tmp_path}/free; {refused}; }}"

    events = _told(_order(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert any(event.step is Step.NOTE and "waits" in event.words for event in events)
    assert events[-1].step is Step.DONE


def test_a_package_manager_that_stays_busy_is_waited_for_no_longer_than_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that time the operator is told to look who it is."""
    monkeypatch.setattr(connector, "PACKAGES_SECONDS", 1.5)
    busy = f"echo >> {tmp_path}/tries; echo 'E: Could not get lock /var/lib/dpkg/lock' >&2; exit 100"

    events = _told(_order(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert "did not end in time" in events[-1].words
    assert "look who" in events[-1].fix
    assert len((tmp_path / "tries").read_text()) > 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("dpkg: error: No space left on device", "its disk is full"),
        ("E: Failed to fetch http://deb/x  Temporary failure resolving 'deb'", "cannot reach a package archive"),
        ("E: Unable to locate package nvtop", "do not have what is wanted"),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly", "ended in the middle of its work"),
    ],
    ids=["disk", "mirror", "package", "killed"],
)
def test_a_failure_that_is_known_says_what_to_do(said: str, told: str, tmp_path: Path) -> None:
    """The operation is named, with what its command's words mean."""
    node = Notebook(tmp_path / "node", failing=f'echo "{said}" >&2; exit 1')

    events = _told(_order(tmp_path), node)

    assert events[-1].words.startswith("A step between: ")
    assert told in events[-1].words
    assert events[-1].fix


def test_a_node_without_room_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the order is done, and nothing is remembered as begun; a look tells the changes all the same."""
    for need in ("LEAST", "OTHERS"):
        monkeypatch.setattr(room, need, room.Need(10**9, 1))

    foretold = _told(_order(tmp_path, check=True), Notebook(tmp_path / "node"))
    events = _told(_order(tmp_path), Notebook(tmp_path / "node"))

    assert foretold[-1].step is Step.DONE
    assert [(event.step, event.kind) for event in events] == [(Step.TROUBLE, Kind.REFUSED)]
    assert "are needed" in events[-1].words
    assert not (tmp_path / "node").exists()
    assert not (tmp_path / "memory").exists()


def test_a_defect_of_a_role_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator reads a sentence, and the other nodes go on."""

    @dataclass(frozen=True, slots=True)
    class Broken(Notebook):
        def install(self) -> None:
            raise KeyError("nobody")

    events = _told(_order(tmp_path), Broken(tmp_path / "node"))

    assert (events[-1].kind, events[-1].words) == (Kind.DEFECT, "KeyError: 'nobody'")
    assert capsys.readouterr().err == ""


def test_what_waits_for_a_second_connection_gets_it(tmp_path: Path) -> None:
    """A change that may shut us out is confirmed over a connection that is opened after it."""
    confirm = tmp_path / "run/unconfirmed/trial"
    script = f"#!/bin/sh\\nmv $0 {tmp_path}/confirmed\\n"
    trial = f"mkdir -p {confirm.parent}; printf '{script}' > {confirm}; chmod 700 {confirm}"

    events = _told(_order(tmp_path), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "confirmed").exists()


def test_whoever_confirms_knocks_again(tmp_path: Path) -> None:
    """A daemon that takes nobody while it reads its settings anew is not yet a node that shuts everybody out."""
    door, confirm = tmp_path / "door", tmp_path / "run/unconfirmed/trial"
    first = f"test ! -e {confirm} || test -e {tmp_path}/knocked || {{ touch {tmp_path}/knocked; exit 255; }}"
    door.write_text(f'#!/bin/sh\n{first}\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {confirm.parent}; printf '#!/bin/sh\\nrm $0\\n' > {confirm}; chmod 700 {confirm}"

    events = _told(_order(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "knocked").exists()


def test_a_change_after_which_nobody_can_log_in_ends_the_work_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes back by itself; who applied is told which operation it was."""
    monkeypatch.setattr("roles.engine.work.KNOCKING", 1.0)
    door = tmp_path / "door"
    door.write_text(f'#!/bin/sh\ntest ! -e {tmp_path}/run/unconfirmed/trial || exit 255\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {tmp_path}/run/unconfirmed; touch {tmp_path}/run/unconfirmed/trial"

    events = _told(_order(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].kind is Kind.FAILED
    assert "A step between: after it nobody can log in" in events[-1].words
    assert _starts(tmp_path / "node") == 0


def test_when_its_input_ends_no_further_operation_begins(tmp_path: Path) -> None:
    """Ctrl-C stops between two operations, and says of which node."""
    out = io.StringIO()
    reading, writing = os.pipe()
    os.close(writing)

    with os.fdopen(reading, "rb") as ended:
        work_through(_order(tmp_path), ended, out, lambda _: (Notebook(tmp_path / "node"),))

    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["step"], last["kind"]) == ("trouble", "stopped")
    assert not (tmp_path / "node").exists()
