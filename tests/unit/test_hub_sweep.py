"""The sweep of the hub: which runs are lost, with a stand-in of MLflow's calls."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from typing import Any

import pytest

from bedplate.programs.hub.sweep import Record, lost_cause, main, sweep

NOW = 1_800_000_000.0
FLEET: Mapping[str, Any] = {"time": NOW - 30, "faults": [], "machines": {"titan-03": {}}}
DAY = 86_400.0
EXPIRED = "it was queued for 60 days, and its token has expired"
POD = "its pod was silent for 15 minutes: it was deleted or evicted, or its node is lost"


class FakeRecord(ThreadingUnixStreamServer):
    """MLflow with runs by name: `status` and tags."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Requests)
        self.runs: dict[str, dict[str, Any]] = {}
        self.refused = set[str]()
        self.page = 1
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def add(self, name: str, start: float, **tags: str) -> None:
        """Add a run that has not ended."""
        self.runs[name] = {"status": "RUNNING", "start": start, "end": 0, "tags": {"owner": "ada", **tags}}


class _Requests(BaseHTTPRequestHandler):
    server: FakeRecord
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a search of runs by status, end or id, some runs a page, and changes of a run."""
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        answer: dict[str, Any] = {"experiment": {"experiment_id": "7"}}
        status = 200
        runs = self.server.runs
        if self.path.endswith("runs/search"):
            found = {name: run for name, run in runs.items() if _matches(name, run, body["filter"])}
            number = int(body.get("page_token") or 0)
            following = number + self.server.page
            page = [_document(name, run) for name, run in found.items()][number:following]
            answer = {"runs": page, "next_page_token": str(following) if following < len(found) else ""}
        elif body.get("run_id") in self.server.refused:
            status = 400
        elif self.path.endswith("runs/update"):
            runs[body["run_id"]] |= {"status": body["status"], "end": body["end_time"] / 1000}
        elif self.path.endswith("log-batch"):
            tags = {tag["key"].removeprefix("bedplate."): tag["value"] for tag in body["tags"]}
            runs[body["run_id"]]["tags"] |= tags
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST  # noqa: N815  the name of a method of HTTP

    def address_string(self) -> str:
        """Return no address: a unix socket has none."""
        return ""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _matches(name: str, run: Mapping[str, Any], condition: str) -> bool:
    words = condition.split(" ", 2)
    if words[:2] == ["attributes.run_id", "IN"]:
        return f"'{name}'" in words[2]
    if words[:2] == ["attributes.end_time", ">"]:
        return bool(run["end"] * 1000 > int(words[2]))
    if words[0] == "tags.`bedplate.id`":
        return bool(words[2] == f"'{run['tags'].get('id', name)}'")
    assert condition == "attributes.status = 'RUNNING'"
    return bool(run["status"] == "RUNNING")


def _document(name: str, run: Mapping[str, Any]) -> Mapping[str, Any]:
    tags = [{"key": f"bedplate.{key}", "value": value} for key, value in run["tags"].items()]
    info = {
        "run_id": name,
        "run_name": name,
        "status": run["status"],
        "start_time": int(run["start"] * 1000),
        "end_time": int(run["end"] * 1000),
    }
    return {"info": info, "data": {"tags": tags}}


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[FakeRecord]:
    """Yield a record without runs."""
    with FakeRecord(tmp_path / "socket") as server:
        yield server
        server.shutdown()


def _sweep(mlflow: FakeRecord) -> None:
    """Sweep once."""
    sweep(Record(str(mlflow.server_address)), FLEET, NOW)


@pytest.mark.parametrize(
    ("run", "fleet", "cause"),
    [
        ({"state": "sent"}, FLEET, ""),
        # The upload of its code may take hours.
        ({"state": "sent", "start": NOW - 20_000}, FLEET, ""),
        ({"state": "sent", "start": NOW - 2 * DAY}, FLEET, "it was never started"),
        ({"state": "queued", "image": "r@sha256:1", "start": NOW - DAY}, FLEET, ""),
        ({"state": "running", "image": "r@sha256:1", "seen": NOW - 800}, FLEET, ""),
        ({"state": "running", "image": "r@sha256:1", "seen": NOW - 1_000}, FLEET, POD),
        ({"state": "running", "in": "ada-1127-notes", "seen": NOW - 1_000}, FLEET, POD.replace("pod", "session")),
        ({"state": "queued", "start": NOW - 2 * DAY}, FLEET, ""),
        ({"state": "queued", "image": "r@sha256:1", "start": NOW - 59 * DAY}, FLEET, ""),
        ({"state": "queued", "image": "r@sha256:1", "start": NOW - 61 * DAY}, FLEET, EXPIRED),
        # A run that another one has displaced.
        ({"state": "queued", "image": "r@sha256:1", "seen": NOW - 20 * DAY, "start": NOW - 30 * DAY}, FLEET, ""),
        ({"state": "queued", "machine": "train-7", "start": NOW - 1_000}, FLEET, "its machine train-7 has ended"),
        ({"state": "running", "image": "r@sha256:1", "array": "1-9", "seen": NOW - 3_600}, FLEET, ""),
        # A run that somebody has made with MLflow alone, such as in a notebook.
        ({"start": NOW - 30 * DAY}, FLEET, ""),
        ({"state": "running", "machine": "titan-03", "seen": NOW - DAY}, FLEET, ""),
        ({"state": "running", "machine": "train-7", "seen": NOW - 100}, FLEET, ""),
        ({"state": "running", "machine": "train-7", "seen": NOW - 1_000}, FLEET, "its machine train-7 has ended"),
        ({"state": "running", "machine": "train-7", "seen": NOW - 1_000}, {**FLEET, "faults": ["no answer"]}, ""),
        ({"state": "running", "machine": "train-7", "seen": NOW - 1_000}, {**FLEET, "time": NOW - 3_600}, ""),
        ({"state": "running", "machine": "train-7", "seen": NOW - 1_000}, {"time": None, "machines": {}}, ""),
        (
            {"state": "running", "machine": "titan-03", "seen": NOW - 8 * DAY},
            FLEET,
            "nothing was heard of it for 7 days",
        ),
    ],
)
def test_a_run_is_lost_only_if_nobody_will_hear_of_it(
    run: dict[str, Any], fleet: Mapping[str, Any], cause: str
) -> None:
    """A machine that is cut off comes back; one that EC2 does not have never does. What is unknown is not lost.

    For a run in a queue nobody reports: it ends with its token.
    """
    seen = {"seen": str(int(run["seen"] * 1000))} if "seen" in run else {}

    assert lost_cause({"start": NOW - 60, **run, **seen}, fleet, NOW) == cause


def test_pods_are_lost_after_a_day_if_no_run_reports(mlflow: FakeRecord) -> None:
    """The way to the hub may be cut for all: then the runs go on, and nobody is told of an end."""

    def add(name: str, hours: float) -> None:
        seen = str(int((NOW - hours * 3_600) * 1000))
        mlflow.add(name, NOW - 3 * DAY, state="running", image="r@sha256:1", seen=seen)

    add("silent", 2)
    add("lost", 30)
    _sweep(mlflow)
    assert {name: run["tags"]["state"] for name, run in mlflow.runs.items()} == {"silent": "running", "lost": "ended"}

    add("alive", 0)
    _sweep(mlflow)
    assert {name: run["tags"]["state"] for name, run in mlflow.runs.items()}["silent"] == "ended"


def test_runs_of_a_removed_person_end(mlflow: FakeRecord) -> None:
    """Also a hundred that are queued, at once; those of others go on."""
    for number in range(100):
        mlflow.add(f"queued-{number}", NOW - 60, state="queued", image="r@sha256:1")
    mlflow.add("other", NOW - 60, state="queued", image="r@sha256:1")

    left = sweep(Record(str(mlflow.server_address)), FLEET, NOW, {f"queued-{number}" for number in range(100)})

    ended = {run["tags"].get("cause") for name, run in mlflow.runs.items() if name != "other"}
    assert ended == {"its person was removed from the fleet"}
    assert [run["run"] for run in left] == ["other"]
    assert mlflow.runs["other"]["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("codes", "status"), [("00", "FINISHED"), ("03", "FAILED"), ("0", "RUNNING")], ids=["good", "failed", "going on"]
)
def test_an_array_whose_elements_have_all_ended_ends(codes: str, status: str, mlflow: FakeRecord) -> None:
    """The last agent may be lost before it has written the end; records of elements end with that of their array."""
    seen = {"state": "running", "image": "r@sha256:1", "seen": str(int(NOW * 1000))}
    exits = {f"exit.0.{number}": code for number, code in enumerate(codes)}
    mlflow.add("array", NOW - 60, array="0-1", elements="2", **seen, **exits)
    mlflow.add("element", NOW - 60, parent="array", state="running")
    mlflow.add("machine", NOW - 60, array="0-1", elements="2", machine="titan-03", state="running", **exits)

    _sweep(mlflow)
    assert mlflow.runs["array"]["status"] == status
    assert mlflow.runs["machine"]["status"] == "RUNNING"

    _sweep(mlflow)
    is_over = status != "RUNNING"
    assert mlflow.runs["element"]["tags"].get("cause") == ("its array has ended" if is_over else None)


@pytest.mark.parametrize(
    ("lists", "ended"),
    [
        (("20001 ada\n20002 bob\n", ""), []),
        (("20002 bob\n", ""), ["of-ada"]),
        (("20001 ada\n20002 bob\n", "20002\n"), ["of-bob"]),
        # A fault of the role ends nothing.
        (("", ""), []),
    ],
)
def test_the_owner_of_a_run_is_who_asked_for_its_token(
    lists: tuple[str, str], ended: list[str], mlflow: FakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag of its record ends no run."""
    monkeypatch.setattr(Record.__init__, "__defaults__", (str(mlflow.server_address), 60))
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/runs").write_text("of-ada 20001\nof-bob 20002\n")
    (tmp_path / "tokens/removed").write_text(lists[1])
    (tmp_path / "people").write_text(lists[0])
    for name in ("of-ada", "of-bob"):
        mlflow.add(name, time.time() - 60, state="queued", owner="gone")

    main(tmp_path, tmp_path / "people")

    assert [name for name, run in mlflow.runs.items() if run["status"] == "FAILED"] == ended


@pytest.mark.parametrize(
    ("status", "after", "cause"),
    [
        ("RUNNING", "first:ok", ""),
        ("FINISHED", "first:ok", ""),
        ("FAILED", "first:ok", "it did not run: first failed"),
        ("KILLED", "first:ok", "it did not run: first was stopped"),
        ("FAILED", "first:any", ""),
        ("FAILED", "absent:ok", "it did not run: absent is in no record"),
        ("FAILED", "x' OR 1=1:ok", ""),
    ],
)
def test_a_run_after_one_that_failed_ends(status: str, after: str, cause: str, mlflow: FakeRecord) -> None:
    """If it waits for a good end of that run."""
    mlflow.add("first", NOW - DAY, state="running", seen=str(int(NOW * 1000)))
    mlflow.runs["first"]["status"] = status
    mlflow.add("second", NOW - 60, state="queued", after=after, image="r@sha256:1")
    mlflow.add("third", NOW - 60, state="running", after="absent:ok", seen=str(int(NOW * 1000)))

    _sweep(mlflow)

    assert mlflow.runs["second"]["tags"].get("cause", "") == cause
    assert mlflow.runs["third"]["status"] == "RUNNING"


def test_a_lost_run_ends_when_it_was_last_seen(mlflow: FakeRecord) -> None:
    """Its record has an end, a state and a cause; runs that go on stay as they are."""
    mlflow.add("lost", NOW - DAY, state="running", machine="train-7", seen=str(int((NOW - 7_200) * 1000)))
    mlflow.add("alive", NOW - DAY, state="running", machine="titan-03", seen=str(int((NOW - 30) * 1000)))

    _sweep(mlflow)

    lost, alive = mlflow.runs["lost"], mlflow.runs["alive"]
    assert (lost["status"], lost["end"], lost["tags"]["state"]) == ("FAILED", NOW - 7_200, "ended")
    assert lost["tags"]["cause"] == "its machine train-7 has ended"
    assert (alive["status"], alive["tags"]["state"]) == ("RUNNING", "running")


def test_a_run_that_the_record_refuses_keeps_no_other_from_its_end(
    mlflow: FakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal names it."""
    for name in ("first", "broken", "last"):
        mlflow.add(name, NOW - DAY, state="running", machine="train-7", seen=str(int((NOW - 7_200) * 1000)))
    mlflow.add("unseen", NOW - DAY, state="running", machine="train-7", seen=f"{10**400}")
    mlflow.refused.add("broken")

    _sweep(mlflow)

    assert [run["status"] for run in mlflow.runs.values()] == ["FAILED", "RUNNING", "FAILED", "RUNNING"]
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["<3>broken", "<3>unseen"]


def test_nobody_is_silent_before_the_record_could_be_written() -> None:
    """After a restart of the record agents have time to report."""
    run = {"state": "running", "image": "r@sha256:1", "seen": str(int((NOW - 1_000) * 1000)), "start": NOW - DAY}

    assert lost_cause(run, FLEET, NOW, NOW - 800) == ""
    assert lost_cause(run, FLEET, NOW, NOW - 950) == POD


def test_a_record_that_does_not_answer_is_no_success(tmp_path: Path) -> None:
    """The unit of the sweep fails, and the next minute tries again."""
    (tmp_path / "socket").touch()
    with pytest.raises(OSError, match="refused"), socket.socket(socket.AF_UNIX):
        list(Record(str(tmp_path / "socket")).search(""))
