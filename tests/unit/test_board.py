"""A board: TensorBoard over event files here and on the hub, and optuna-dashboard over records."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter, masked_crc32c
from werkzeug.test import Client

from bedplate.programs.board import __main__ as program
from bedplate.programs.board import events
from bedplate.programs.board.events import RunsPage
from bedplate.programs.board.trials import StudyPage
from bedplate.programs.bp.records import find_run
from bedplate.programs.connection import Connection, HubError
from tests.testlab.fakes.laptop import HOST
from tests.testlab.fakes.runs import wait_for
from tests.testlab.fakes.studies import SearchHub, study_of

_TOKEN = "20001.1893456000.run:5ea." + "R" * 24
NAME = "events.out.tfevents.1796000000.titan-03.1.0"


def event_file(steps: Iterable[int], tag: str = "loss") -> bytes:
    """Return an event file with a value for each step."""
    file = BytesIO()
    writer = RecordWriter(file)
    writer.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
    for step in steps:
        value = Summary.Value(tag=tag, simple_value=1 / (step + 1))
        writer.write(Event(wall_time=100.0 + step, step=step, summary=Summary(value=[value])).SerializeToString())
    return file.getvalue()


def record(data: bytes) -> bytes:
    """Return a record of an event file with right sums."""
    file = BytesIO()
    RecordWriter(file).write(data)
    return file.getvalue()


class Board:
    """Boards of a person on a machine, where each run has a folder."""

    def __init__(self, hub: SearchHub, folder: Path) -> None:
        self.hub, self.folder, self.lines = hub, folder, list[str]()
        self.runs = dict[str, str]()
        facts = {"hub": f"https://{HOST}:{hub.server_address[1]}", "address": "127.0.0.1"}
        self.facts: dict[str, Any] = {**facts, "certificate": hub.certificate.read_text()}
        self.own, self.hubs = folder / "runs/ada-0412-board", list[Connection]()

    def add(self, name: str, **tags: str) -> str:
        """Add a run of a person, and return its id."""
        self.runs[name] = self.hub.add_run(name, **tags)
        return self.runs[name]

    def write(self, path: str, data: bytes) -> Path:
        """Write a file of a run on this machine."""
        file = self.folder / "runs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def leave(self, name: str, path: str, data: bytes) -> None:
        """Let the hub have a file that a run has left."""
        self.hub.files[f"7/{self.runs[name]}/artifacts/output/{path}"] = data

    def open(self) -> RunsPage:
        """Return a board over all runs after its first look."""
        page = RunsPage({**self.facts, "runs": self.runs}, _TOKEN, self.own / "output", self.lines.append)
        self.hubs.append(vars(page)["_hub"])
        page.look()
        return page

    def study(self, settings: Any) -> StudyPage:  # noqa: ANN401  those of a file
        """Return a board over a study after its first look."""
        facts = {**self.facts, "name": "ada-lr", "settings": settings}
        page = StudyPage(facts, _TOKEN, self.own / "output", self.lines.append)
        self.hubs.append(vars(vars(page)["_record"])["_hub"])
        page.look()
        return page


def ask(page: RunsPage | StudyPage, path: str) -> Any:  # noqa: ANN401  a document
    """Return what the pages of a board ask for."""
    answer = Client(page.app).get(path)
    assert answer.status_code == 200, answer.text
    return answer.json


def runs_of(page: RunsPage) -> set[str]:
    """Return the names of what TensorBoard lists."""
    return {*ask(page, "/data/runs")}


def steps_of(page: RunsPage, run: str, tag: str = "loss") -> list[int]:
    """Return the steps that TensorBoard has of a run."""
    return [step for _, step, _ in ask(page, f"/data/plugin/scalars/scalars?run={run}&tag={tag}")]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """Yield a machine for boards, and a hub with records."""
    (tmp_path / "runs/ada-0412-board").mkdir(parents=True)
    for name in ("output", "checkpoints"):
        monkeypatch.setenv(f"BEDPLATE_{name.upper()}", str(tmp_path / "runs/ada-0412-board" / name))
    with SearchHub(tmp_path) as hub:
        board = Board(hub, tmp_path)
        yield board
        for used in board.hubs:
            used.close()


def test_a_board_reads_event_files_where_a_run_writes_them(board: Board) -> None:
    """New values are there at the next look; the name of the run is that of the page."""
    board.add("ada-0412-brave-otter")
    file = board.write(f"ada-0412-brave-otter/work/runs/a/{NAME}", event_file(range(3)))
    page = board.open()
    first = steps_of(page, "ada-0412-brave-otter/runs/a")
    with file.open("ab") as more:
        more.write(event_file(range(3, 5))[len(event_file(())) :])
    page.look()

    assert runs_of(page) == {"ada-0412-brave-otter/runs/a"}
    assert (first, steps_of(page, "ada-0412-brave-otter/runs/a")) == ([0, 1, 2], [0, 1, 2, 3, 4])


def test_a_board_reads_event_files_beside_checkpoints(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared store has them also for a run on another machine, or in a pod."""
    store = board.folder / "home/.bedplate/checkpoints"
    monkeypatch.setenv("BEDPLATE_CHECKPOINTS", str(store / "ada-0412-board"))
    board.add("ada-one")
    (store / "ada-one").mkdir(parents=True)
    (store / "ada-one" / NAME).write_bytes(event_file(range(2)))

    assert steps_of(board.open(), "ada-one") == [0, 1]


def test_a_board_copies_what_the_hub_has_as_it_grows(board: Board) -> None:
    """Runs of colleagues and of other machines are there, too; a file that has not changed is read once."""
    run = board.add("bo-fast-crab", owner="bo")
    board.leave("bo-fast-crab", f"tb/{NAME}", event_file(range(3)))
    board.leave("bo-fast-crab", "model.bin", b"0" * 100)
    page = board.open()
    first = steps_of(page, "bo-fast-crab/tb")
    page.look()
    board.leave("bo-fast-crab", f"tb/{NAME}", event_file(range(6)))
    board.hub.end_run(run)
    page.look()
    page.look()
    gets = [line for line, *_ in board.hub.requests if line.startswith("GET") and "artifacts/output/" in line]

    assert (first, steps_of(page, "bo-fast-crab/tb")) == ([0, 1, 2], [0, 1, 2, 3, 4, 5])
    assert len(gets) == 2
    assert sum("runs/get" in line for line, *_ in board.hub.requests) == 3


def test_a_board_compares_several_runs(board: Board) -> None:
    """Each has its name; a run without event files is named once, and says where they belong."""
    for name in ("ada-one", "ada-two", "ada-none"):
        board.add(name)
    board.write(f"ada-one/output/{NAME}", event_file(range(2)))
    board.leave("ada-two", NAME, event_file(range(4)))
    page = board.open()
    page.look()

    assert runs_of(page) == {"ada-one", "ada-two"}
    assert board.lines == ["ada-none has no event files yet: programs write them to $BEDPLATE_OUTPUT"]


def promise(length: int) -> bytes:
    """Return the start of a record that says to be so long."""
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head)) + b"x" * 100


# Of a file that somebody has written for that: a number that no size can be, and more than all memory.
CRAFTED = {"number": 1 << 63, "memory": 1 << 62}
DAMAGED: Mapping[str, tuple[bytes, list[int]]] = {
    "empty": (b"", []),
    "cut": (event_file(range(3))[:-7], [0, 1]),
    "zeros": (b"\0" * 5_000, []),
    "text": (b"a text\n" * 100, []),
    "no-event": (record(b"\xff\xff\xff no event") + event_file(range(3)), [0, 1, 2]),
    "terabyte": (promise(1 << 40), []),
    **{name: (promise(length), []) for name, length in CRAFTED.items()},
    "wrong-sum": (event_file(range(3)).replace(b"loss", b"l0ss", 1), []),
}


def test_a_damaged_event_file_ends_no_board(board: Board) -> None:
    """What is before the damage is there, and so are the other runs, also what comes later."""
    for name in ("ada-a", *DAMAGED, "z"):
        board.add(name)
    for name, (data, _) in DAMAGED.items():
        board.write(f"{name}/work/{NAME}", data)
    board.write(f"ada-a/work/{NAME}", event_file(range(2)))
    page = board.open()
    board.write(f"z/work/{NAME}", event_file(range(2)))
    page.look()
    tags = ask(page, "/data/plugin/scalars/tags")

    assert steps_of(page, "ada-a") == steps_of(page, "z") == [0, 1]
    found = {name: steps_of(page, name) if tags.get(name) else [] for name in DAMAGED}
    assert found == {name: steps for name, (_, steps) in DAMAGED.items()}
    assert {line.partition(": ")[0] for line in board.lines if "damaged" in line} == {*CRAFTED, "no-event"}


def test_what_is_no_regular_file_of_this_person_is_left_out(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would stop all reading; a link may lead to files of others, or to its own folder."""
    board.add("ada-one")
    file = board.write(f"ada-one/work/a/{NAME}", event_file(range(2)))
    os.mkfifo(file.with_name(f"pipe.{NAME}"))
    file.with_name(f"link.{NAME}").symlink_to("/etc/passwd")
    (file.parent / "loop").symlink_to(file.parent)
    (file.parent / f"folder.{NAME}").mkdir()
    locked = board.write(f"ada-one/work/locked/{NAME}", b"")
    may_read = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked and may_read(path, mode))
    page = board.open()

    assert runs_of(page) == {"ada-one/a"}
    assert sorted(path.name for path in (board.own / "events").rglob("*tfevents*")) == [NAME]


def test_a_board_copies_no_more_than_its_limit(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge file of the hub is named once, and the rest is there."""
    monkeypatch.setattr(events, "_MOST", 2_000)
    board.add("ada-huge")
    board.add("ada-one")
    board.leave("ada-huge", NAME, event_file(range(100)))
    board.leave("ada-one", NAME, event_file(range(2)))
    page = board.open()
    page.look()

    assert runs_of(page) == {"ada-one"}
    assert board.lines == [f"ada-huge: {NAME} is left out: a board copies at most 0 GiB"]


def test_a_name_of_a_record_leads_to_no_other_folder(board: Board) -> None:
    """Colleagues can write names: one with dots or slashes is looked for on the hub only."""
    board.add("../secret")
    board.write(f"../secret/work/{NAME}", event_file(range(2)))

    assert runs_of(board.open()) == set()


def test_a_hub_that_is_away_leaves_the_page_as_it_is(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look says so, and reads files of this machine, also new ones; the next one goes on."""
    for name in ("ada-far", "ada-here"):
        board.add(name)
    board.leave("ada-far", NAME, event_file(range(2)))
    page = board.open()
    board.leave("ada-far", NAME, event_file(range(4)))
    board.write(f"ada-here/work/{NAME}", event_file(range(3)))
    monkeypatch.setattr(Connection.call, "__defaults__", (None, 0.1, ""))
    board.hub.is_away = True
    board.hub.end_connections()
    with pytest.raises(HubError, match="does not serve requests"):
        page.look()
    away = steps_of(page, "ada-far"), steps_of(page, "ada-here")
    board.hub.is_away = False
    page.look()

    assert (*away, steps_of(page, "ada-far")) == ([0, 1], [0, 1, 2], [0, 1, 2, 3])


def test_a_record_that_is_gone_ends_no_board(board: Board) -> None:
    """It is named, and the other runs are there."""
    gone = board.add("ada-gone")
    board.add("ada-one")
    board.leave("ada-one", NAME, event_file(range(2)))
    del board.hub.runs[gone]
    page = board.open()

    assert runs_of(page) == {"ada-one"}
    assert [line for line in board.lines if line.startswith("ada-gone: ")]


def test_a_record_that_no_hub_writes_ends_no_board(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and the other runs are there."""
    board.add("ada-list")
    board.add("ada-one")
    board.leave("ada-one", NAME, event_file(range(2)))
    found = find_run

    def find(hub: Connection, word: str) -> Mapping[str, Any]:
        return found(hub, {board.runs["ada-one"]: word}[word])

    monkeypatch.setattr(events, "find_run", find)

    assert runs_of(board.open()) == {"ada-one"}
    assert board.lines == [f"ada-list: {board.runs['ada-list']!r}"]


class Page:
    """A page whose looks fail, and take seconds of a processor."""

    def __init__(self, failure: Exception) -> None:
        self.pause, self.looks, self._failure = 15.0, 0, failure

    def look(self) -> None:
        """Work, and fail."""
        self.looks += 1
        raise self._failure


@pytest.mark.parametrize("failure", [OverflowError("a number"), MemoryError("no memory"), AttributeError("a list")])
def test_a_look_that_fails_is_not_the_last_one(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it meets; its error is said once."""
    page, said, pauses = Page(failure), list[str](), list[float]()
    monkeypatch.setattr(program, "say", said.append)

    repeat(page, pauses, [0.0] * 6, monkeypatch)

    assert page.looks == 3
    assert said == [f"error: {failure}; what is shown stays"]


def test_a_board_is_idle_for_twenty_times_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have folders of 100,000 files; looks that take nothing have the pause of the page."""
    pauses = list[float]()

    repeat(Page(OSError("away")), pauses, [0.0, 0.1, 1.0, 3.0, 3.0, 3.0], monkeypatch)

    assert pauses == [15.0, 40.0, 15.0]


def repeat(page: Page, pauses: list[float], seconds: Iterable[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a page until the seconds of a processor at the starts and ends of looks are used up."""
    clock = iter(seconds)
    monkeypatch.setattr(program, "time", SimpleNamespace(sleep=pauses.append, thread_time=lambda: next(clock)))
    with pytest.raises(StopIteration):
        program.repeat(page.look, lambda: page.pause, Flag())


def test_a_board_of_many_runs_asks_the_hub_for_one_a_second(board: Board) -> None:
    """As long as they go on: what has ended is looked at once."""
    for number in range(20):
        board.add(f"ada-{number:02}")
    page = board.open()
    before = page.pause
    for run in [*board.runs.values()][:12]:
        board.hub.end_run(run)
    page.look()

    assert (before, page.pause) == (20.0, 15.0)


def test_a_board_is_a_page_on_a_socket(board: Board, tmp_path: Path) -> None:
    """Its program opens no port, and prints no addresses of requests; a stop ends it."""
    board.add("ada-one")
    board.write(f"ada-one/work/{NAME}", event_file(range(2)))
    facts = {**board.facts, "runs": board.runs}
    (tmp_path / "board.json").write_text(json.dumps(facts))
    own = {"MLFLOW_TRACKING_TOKEN": _TOKEN, "BEDPLATE_PAGE": str(tmp_path / "page"), "PYTHONPATH": str(Path.cwd())}
    code = "from pathlib import Path; from bedplate.programs.board.__main__ import main; main(Path())"
    command, log = (sys.executable, "-c", code), tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **own}, stdout=output, stderr=output) as process,
    ):
        try:
            wait_for(lambda: b"ada-one" in get(tmp_path / "page", "/data/runs"))
            assert b"<tb-webapp>" in get(tmp_path / "page", "/")
            listening = subprocess.run(("ss", "-lntup"), capture_output=True, text=True, check=True).stdout
        finally:
            process.terminate()
        assert process.wait(10) == -signal.SIGTERM

    assert f"pid={process.pid}," not in listening
    assert "GET" not in log.read_text()


def get(path: Path, page: str) -> bytes:
    """Return what a server on a socket answers; nothing while it starts."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(path))
        except OSError:
            return b""
        link.sendall(f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nConnection: close\r\n\r\n".encode())
        return link.makefile("rb").read()


def trial_tags(number: int, lr: float) -> dict[str, str]:
    """Return the tags of a trial of the study."""
    return {"study": "ada-lr", "trial": json.dumps({"lr": str(lr), "layers": str(number + 1)})}


def test_optuna_dashboard_shows_a_study_by_its_records(board: Board) -> None:
    """Each trial has its state, parameters, curve and times; what ends later is there at the next look."""
    runs = [board.hub.add_run(f"ada-lr-{number:04}", **trial_tags(number, 0.01)) for number in range(3)]
    board.hub.add_run("ada-lr-0003", study="ada-lr", trial='{"lr": "no number"}')
    board.hub.add_run("ada-other-0000", study="ada-other")
    for run in runs:
        rows = [{"run_id": run, "key": "loss", "value": 1 / step, "step": step, "timestamp": "5"} for step in (1, 2)]
        board.hub.runs[run]["rows"] = rows
    board.hub.end_run(runs[0])
    board.hub.end_run(runs[1], "KILLED")
    board.hub.runs[runs[1]]["tags"]["bedplate.cause"] = "stopped by ada-lr: pruned at step 2"
    page = board.study(study_of())
    study = ask(page, "/api/studies")["study_summaries"]
    trials = ask(page, f"/api/studies/{study[0]['study_id']}")["trials"]
    board.hub.end_run(runs[2])
    page.look()
    later = ask(page, f"/api/studies/{study[0]['study_id']}")["trials"]

    assert [(one["study_name"], one["directions"]) for one in study] == [("ada-lr", ["minimize"])]
    assert [trial["state"] for trial in trials] == ["Complete", "Pruned", "Running", "Fail"]
    assert trials[0]["values"] == [0.5]
    assert [(value["step"], value["value"]) for value in trials[1]["intermediate_values"]] == [(1, 1.0), (2, 0.5)]
    assert {param["name"]: param["param_external_value"] for param in trials[2]["params"]} == {
        "lr": "0.01",
        "layers": "3",
    }
    assert {"key": "run", "value": "ada-lr-0000"} in [
        {key: attribute[key] for key in ("key", "value")} for attribute in trials[0]["user_attrs"]
    ]
    assert [trial["state"] for trial in later][:3] == ["Complete", "Pruned", "Complete"]


@pytest.mark.parametrize("wrong", [1 << 70, -(1 << 60)])
def test_a_time_that_no_clock_has_is_left_out_of_a_study(wrong: int, board: Board) -> None:
    """Colleagues can change records: the trial has failed then, and the others are there."""
    runs = [board.hub.add_run(f"ada-lr-{number:04}", **trial_tags(number, 0.01)) for number in range(2)]
    board.hub.runs[runs[0]]["start_time"] = wrong
    page = board.study(study_of())
    study = ask(page, "/api/studies")["study_summaries"]
    trials = ask(page, f"/api/studies/{study[0]['study_id']}")["trials"]

    assert [trial["state"] for trial in trials] == ["Fail", "Running"]


def test_pages_of_a_study_change_nothing(board: Board) -> None:
    """Optuna's page can remove a study and write notes: the records are the study, so that is refused."""
    page = board.study(study_of())
    answers = [Client(page.app).delete("/api/studies/0"), Client(page.app).post("/api/studies", json={})]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert len(ask(page, "/api/studies")["study_summaries"]) == 1
