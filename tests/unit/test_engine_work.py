"""An order carried out: roles of a test, pyinfra's own operations, real agents of this machine in a test's folders."""

import io
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from pyinfra.operations import files

from bedplate.nodes.event import Kind, Step
from bedplate.nodes.order import Order, Target
from roles.base import Changes
from roles.engine.shift import work_through
from tests.support.engine_work import GATE, NAS, Notebook, carried_out, changes, order_of, starts


def test_an_apply_makes_it_so_and_a_second_changes_nothing(tmp_path: Path) -> None:
    """What is as it ought to be is left alone, restarts included."""
    folder = tmp_path / "node"

    first = carried_out(order_of(tmp_path), Notebook(folder))
    second = carried_out(order_of(tmp_path), Notebook(folder))

    assert changes(first) == ["Folder", "Settings", "Start anew"]
    assert (first[-1].step, first[-1].changed, first[-1].unchanged) == (Step.DONE, 3, 0)
    assert changes(second) == []
    assert (second[-1].changed, second[-1].unchanged) == (0, 3)
    assert starts(folder) == 1


def test_a_check_says_exactly_what_an_apply_then_does(tmp_path: Path) -> None:
    """What only answers a change is foretold with the change, and not without it."""
    folder = tmp_path / "node"
    foretold = changes(carried_out(order_of(tmp_path, check=True), Notebook(folder)))
    untouched = not folder.exists()
    done = changes(carried_out(order_of(tmp_path), Notebook(folder)))

    after = carried_out(order_of(tmp_path, check=True), Notebook(folder))

    assert untouched
    assert foretold == done
    assert changes(after) == []


def test_what_a_failure_left_undone_is_done_by_the_next_apply(tmp_path: Path) -> None:
    """The file is as it ought to be by then, and what reads it is started all the same."""
    folder = tmp_path / "node"
    failed = carried_out(order_of(tmp_path), Notebook(folder, failing="echo no >&2; exit 1"))
    foretold = changes(carried_out(order_of(tmp_path, check=True), Notebook(folder)))

    second = carried_out(order_of(tmp_path), Notebook(folder))
    third = carried_out(order_of(tmp_path), Notebook(folder))

    assert (failed[-1].step, failed[-1].kind, failed[-1].words) == (Step.TROUBLE, Kind.FAILED, "A step between: no")
    assert foretold == changes(second) == ["Start anew"]
    assert changes(third) == []
    assert starts(folder) == 1


@pytest.mark.parametrize(("number", "moment"), [(1, "after"), (2, "before"), (2, "after"), (3, "before")])
def test_a_line_cut_at_any_operation_is_made_good(number: int, moment: str, tmp_path: Path) -> None:
    """Wherever it is cut, the second apply ends where one whole apply would have, and the third changes nothing."""
    node = Notebook(tmp_path / "node")
    cutting = (sys.executable, "-m", "tests.support.cut_line", str(number), moment)

    cut = carried_out(order_of(tmp_path, command=cutting), node)
    second = carried_out(order_of(tmp_path), node)
    third = carried_out(order_of(tmp_path), node)

    assert (cut[-1].step, cut[-1].kind) == (Step.TROUBLE, Kind.CUT)
    assert second[-1].step is Step.DONE
    assert (tmp_path / "node/settings").read_text() == "one\n"
    assert starts(tmp_path / "node") >= 1
    assert changes(third) == []


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
    carried_out(order_of(tmp_path), Notebook(tmp_path / "node", failing="exit 1"), diary)
    diary.folder.rmdir()
    alone = carried_out(replace(order_of(tmp_path), only=frozenset({"diary"})), notebook, diary)

    after = carried_out(order_of(tmp_path), notebook, diary)
    last = carried_out(order_of(tmp_path), notebook, diary)

    assert changes(alone) == ["Folder of diaries"]
    assert changes(after) == ["Start anew"]
    assert changes(last) == []


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

    events = {event.node: event for event in carried_out(order, Notebook(tmp_path / "node"))}

    assert events[GATE.name].kind is Kind.UNREACHED
    assert events[NAS.name].step is Step.DONE


def test_when_its_input_ends_no_further_operation_begins(tmp_path: Path) -> None:
    """Ctrl-C stops between two operations, and says of which node."""
    out = io.StringIO()
    reading, writing = os.pipe()
    os.close(writing)

    with os.fdopen(reading, "rb") as ended:
        work_through(order_of(tmp_path), ended, out, lambda _: (Notebook(tmp_path / "node"),))

    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["step"], last["kind"]) == ("trouble", "stopped")
    assert not (tmp_path / "node").exists()
