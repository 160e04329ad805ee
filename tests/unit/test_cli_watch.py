"""`bedplate top`, `report` and `watch`, with a real Prometheus and Alertmanager behind a fake ssh to the hub."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bedplate.cli import run
from bedplate.monitoring.layer import RECORDS
from bedplate.operate import watch
from tests.testlab.fakes.runs import wait_for
from tests.testlab.metrics import DAY, HOUR, STEP, Machine, Store, Use, last_sample, normalised, store_of
from tests.testlab.run import need_program

_SERIES = re.compile(r"bedplate:[a-z_]+")
# ssh that runs the command here, with the ports of the programs of this test; sudo has nothing to do.
_SSH = """#!/bin/bash
[[ ! -e {folder}/away ]] || {{ echo "ssh: connect to host hub port 22: Connection timed out" >&2; exit 255; }}
command=${{@: -1}}
echo "$command" >> {folder}/calls
command=${{command//127.0.0.1:9090/127.0.0.1:$(cat {folder}/prometheus)}}
eval "${{command//127.0.0.1:9093/127.0.0.1:$(cat {folder}/alertmanager)}}"
"""


@cache
def _now() -> int:
    """Return the time of the last sample at the first use: a test may run long after it was collected."""
    return last_sample(time.time())


def _begin() -> int:
    return _now() - 8 * DAY


def _trace() -> list[Machine]:
    """Return machines: two people, one of them with GPUs that did not work, GPUs of nobody, and one without GPUs."""
    ada = (
        Use(_begin(), _now() - 6 * DAY),
        Use(_now() - 6 * DAY, _now() - 2 * DAY, "busy", "ada", "ada-1120-brave-otter", 0.9),
        Use(_now() - 2 * DAY, _now() - DAY, "stuck", "ada", "ada-1120-brave-otter", 0.0),
        Use(_now() - DAY, _now() + HOUR, "held", "ada", "ada-1127-calm-crane", 0.0),
    )
    grace = (Use(_begin(), _now() + HOUR, "busy", "grace", "grace-1119-fine-fox", 0.5),)
    free = (Use(_begin(), _now() + HOUR),)
    return [
        Machine("p5-1.us-west-2", "us-west-2", "train", 80.0, (ada,) * 4 + (grace,) * 2 + (free,) * 2),
        Machine("titan-01.cellar", "cellar", "", 0.0, (ada, grace, free)),
        Machine("cpu-1.us-west-2", "us-west-2", "sim", 2.5),
        # Its exporter of GPUs is silent for two days.
        Machine("p4-1.us-west-2", "us-west-2", "train", 16.0, ((Use(_begin(), _now() - 2 * DAY, "busy", "grace"),),)),
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield a Prometheus with eight days of the trace."""
    samples = normalised(_trace(), range(_begin(), _now() + 2 * STEP, STEP), gpus_from=_now())
    for machine in _trace():
        labels = {
            "instance": machine.name,
            "place": machine.place,
            **({"group": machine.group} if machine.group else {}),
        }
        value = float(machine.place != "cellar")
        samples["bedplate:node_up", tuple(sorted(labels.items()))] = [(_now(), value), (_now() + STEP, value)]
    alert = {"alertname": "NodeDown", "alertstate": "firing", "severity": "ticket", "place": "cellar"}
    samples["ALERTS", tuple(sorted(alert.items()))] = [(_now(), 1.0), (_now() + STEP, 1.0)]
    with store_of(tmp_path_factory.mktemp("store"), samples) as store:
        yield store


@pytest.fixture
def unplanned(here: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a hub with this Prometheus; the current folder has a fleet file without a lock."""
    del here
    folder = tmp_path / "hub"
    folder.mkdir()
    for name, text in (("ssh", _SSH.format(folder=folder)), ("sudo", '#!/bin/sh\nshift\nexec "$@"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "prometheus").write_text(str(store.port))
    (folder / "alertmanager").write_text("1")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def hub(here: Path, unplanned: Path) -> Path:
    """Return the folder of that hub; the fleet has a lock."""
    assert run(["plan", str(here), "--write"]) == 0
    return unplanned


class _Receiver(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        """Keep what is sent, and answer with the next one of the answers, else with nothing."""
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        body = self.server.answers.pop(0) if self.server.answers else b""
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(HTTPServer):
    """Another program of the hub: it keeps what it gets."""

    def __init__(self, answers: list[bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.answers, self.bodies, self.status = answers, list[bytes](), 200


@contextmanager
def _server(*answers: bytes) -> Iterator[_Server]:
    with _Server(list(answers)) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def messages(hub: Path, tmp_path: Path) -> Iterator[_Server]:
    """Yield what gets the messages of a real Alertmanager on the hub, which waits for half a second."""
    need_program("prometheus-alertmanager")
    with _server() as messages:
        to = {"name": "hub", "webhook_configs": [{"url": f"http://127.0.0.1:{messages.server_address[1]}"}]}
        route = {"receiver": "hub", "group_by": ["place"], "group_wait": "500ms", "group_interval": "1s"}
        (tmp_path / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": [to]}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (hub / "alertmanager").write_text(str(port))
        options: dict[str, Any] = {"config.file": tmp_path / "alertmanager.yml", "storage.path": tmp_path / "alerts"}
        options |= {"web.listen-address": f"127.0.0.1:{port}", "cluster.listen-address": "", "log.level": "error"}
        words = [f"--{name}={value}" for name, value in options.items()]
        process = subprocess.Popen(("prometheus-alertmanager", *words))
        wait_for(lambda: _is_ready(port))
        yield messages
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False


def _document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:  # noqa: ANN401
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _by_hand(days: int, now: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Return GPU hours and US dollars by person and state, from the spans of the trace."""
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for machine in _trace():
        for uses in machine.gpus:
            for use in uses:
                hours = max(min(use.end, now) - max(use.start, now - days * DAY), 0) / HOUR
                had = sums.get((use.person, use.state), (0.0, 0.0))
                usd = hours * machine.usd / len(machine.gpus)
                sums[use.person, use.state] = had[0] + hours, had[1] + usd
    return {key: value for key, value in sums.items() if value[0]}


@pytest.mark.parametrize(("words", "days"), [((), 1), (("--week",), 7)])
def test_a_report_equals_a_count_by_hand(
    words: tuple[str, ...], days: int, hub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To one percent, by person and by what the GPUs did; busy, idle and free add up to the bill."""
    document = _document(capsys, "report", "idle", *words)

    found = {
        (use["person"], state): (hours, use["usd"][state])
        for use in document["uses"]
        for state, hours in use["gpu_hours"].items()
        if hours
    }
    wanted = _by_hand(days, time.time())
    assert found.keys() == wanted.keys()
    for key, (hours, usd) in wanted.items():
        assert found[key] == pytest.approx((hours, usd), rel=0.01), key
    bill = days * 24 * 98.5
    assert document["bill_usd"] == pytest.approx(bill, rel=0.01)
    parts = sum(usd for _, usd in found.values())
    assert parts + document["other_usd"] == pytest.approx(document["bill_usd"], rel=1e-6)
    silent = 16.0 * min(days, 2)
    assert document["other_usd"] == pytest.approx(24 * (days * 2.5 + silent), rel=0.02)
    assert document["known"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("run", {"person": "ada", "run": "ada-1120-brave-otter"}),
        ("group", {"place": "us-west-2", "group": "train"}),
    ],
)
def test_the_parts_of_a_report_have_the_same_sum(
    by: str, labels: dict[str, str], hub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By person, run or group; nobody loses or gains an hour."""
    sums = []
    for other in ("person", by):
        document = _document(capsys, "report", "cost", "--week", "--by", other)
        sums.append(sum(sum(use["gpu_hours"].values()) for use in document["uses"]))

    assert sums[0] == pytest.approx(sums[1], rel=0.001)
    assert labels in [{name: use[name] for name in labels} for use in document["uses"] if labels.keys() <= use.keys()]


def test_reports_name_who_has_idle_gpus_first(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sum is last; a place without prices has hours, and no dollars."""
    assert run(["report", "idle", "--by", "group"]) == 0
    head, first, second, last = capsys.readouterr().out.splitlines()[-4:]

    assert head.split() == ["GPU", "HOURS", "BUSY", "HELD", "STUCK", "FREE", "IDLE", "IDLE", "USD"]
    assert first.startswith("train in us-west-2")
    assert first.split()[-2] == "75%"
    assert (second.split()[0], second.split()[-2:]) == ("cellar", ["67%", "0.00"])
    assert last.split()[0] == "all"


def test_a_report_of_cost_ends_with_the_bill(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After what machines without GPUs have cost."""
    assert run(["report", "cost", "--by", "run", "--week"]) == 0

    *rows, other, bill = capsys.readouterr().out.splitlines()
    assert any(row.startswith("ada-1120-brave-otter of ada") for row in rows)
    assert any(row.startswith("(nobody)") for row in rows)
    assert other.startswith("machines without GPUs, or without their figures")
    usd = [float(line.split("  ")[-1].split()[0].replace(",", "")) for line in (other, bill)]
    assert usd == pytest.approx([24 * (7 * 2.5 + 2 * 16), 7 * 24 * 98.5], rel=0.05)


def test_a_report_says_what_it_does_not_know(hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hub that was away for half of the day has figures of the other half."""
    (tmp_path / "half").mkdir()
    times = range(_now() - DAY // 2, _now() + 2 * STEP, STEP)
    with store_of(tmp_path / "half", normalised(_trace(), times, gpus_from=_now())) as store:
        (hub / "prometheus").write_text(str(store.port))
        assert run(["report", "idle"]) == 0

    note = capsys.readouterr().err
    assert "the hub has figures of 50." in note
    assert "of the last 24 hours" in note


def test_the_fleet_is_shown_at_a_glance(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines that answer, GPUs by what they do, alerts, and who has GPUs that do not work."""
    assert run(["top"]) == 0

    lines = capsys.readouterr().out.splitlines()
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in lines}
    assert rows["us-west-2", "train"] == ["2", "of", "2", "8", "2", "4", "0", "2", "96.00"]
    assert rows["cellar", "-"] == ["0", "of", "1", "3", "1", "1", "0", "1", "-"]
    assert ["ticket", "NodeDown", "cellar"] in [line.split() for line in lines]
    assert lines[-1].split() == ["ada-1127-calm-crane", "of", "ada", "5", "40.00", "USD/hour"]
    document = _document(capsys, "top")
    assert {"place": "us-west-2", "group": "train", "value": 96.0} in document["usd"]


def test_every_series_of_the_commands_is_recorded() -> None:
    """Those that no rule records would be empty for ever."""
    texts = [path.read_text() for path in (Path(watch.__file__), Path("bedplate/programs/bp/top.py"))]
    named = {word for text in texts for word in _SERIES.findall(text)}

    assert len(named) > 10
    assert named - {f"bedplate:{record.name}" for record in RECORDS} == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "idle", "--by", "rnu"), "cannot add up by rnu"),
        (("watch", "silence", "NodeDwn", "--why", "x"), "no alert is named NodeDwn"),
        (("watch", "silence", "NodeDown"), "no reason for the silence"),
        (("watch", "silence", "NodeDown", "--why", "x", "--for", "soon"), "no time: soon"),
        (("watch", "test", "RunStuck"), "RunStuck goes to a person"),
        (("watch", "test", "RunStuck", "--person", "nobody"), "no person named nobody"),
        (("watch", "test", "NodeDown", "--person", "grace"), "NodeDown goes to the operators"),
    ],
)
def test_what_cannot_be_meant_does_not_reach_the_hub(
    words: tuple[str, ...], message: str, unplanned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the value to write."""
    assert run(list(words)) == 2

    error = capsys.readouterr().err
    assert message in error
    assert "fix" in error
    assert not (unplanned / "calls").exists()


def test_a_hub_without_figures_is_named(hub: Path, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is away, whose Prometheus does not run, or answers with nonsense."""
    (hub / "prometheus").write_text("1")
    assert run(["top"]) == 6
    assert "Failed to connect to 127.0.0.1 port 1" in capsys.readouterr().err
    with _server(b'{"status": "error", "error": "too many samples"}', b"<html>") as server:
        (hub / "prometheus").write_text(str(server.server_address[1]))
        assert run(["top"]) == 6
        assert "too many samples" in capsys.readouterr().err
        assert run(["top"]) == 6
        assert "<html>" in capsys.readouterr().err
    (hub / "away").touch()
    assert run(["top"]) == 6
    assert "no response on the SSH port" in capsys.readouterr().err


def test_a_test_alert_takes_the_way_of_a_real_one(
    hub: Path, messages: _Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the severity of the alert, and words that say what it is; the command waits for its message."""
    assert run(["watch", "test", "GpuMissing"]) == 0
    assert run(["watch", "test", "RunStuck", "--person", "grace"]) == 0

    first, *_, last = [alert for body in messages.bodies for alert in json.loads(body)["alerts"]]
    assert (first["labels"]["alertname"], first["labels"]["severity"]) == ("GpuMissing", "page")
    assert re.match("a test of GpuMissing by .*: nothing is wrong$", first["annotations"]["summary"])
    assert (last["labels"]["person"], last["labels"]["severity"]) == ("grace", "person")
    assert "grace will get it" in capsys.readouterr().out


def test_a_message_that_nobody_takes_is_reported(
    hub: Path, messages: _Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alertmanager counts attempts, and those that failed."""
    messages.status = 400
    monkeypatch.setattr(watch, "_TEST", 3)
    monkeypatch.setattr(watch, "_PAUSE", 0.1)

    assert run(["watch", "test", "GpuMissing"]) == 6

    assert messages.bodies
    assert "no message about GpuMissing within 3 s" in capsys.readouterr().err


def test_a_silenced_alert_sends_no_message_until_its_end(
    hub: Path, messages: _Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others see who has silenced it and why; the silence of one machine is for that one only."""
    monkeypatch.setattr(watch, "_PAUSE", 0.1)
    why = "the driver's $(reboot) 'update'"
    assert run(["watch", "silence", "NodeDown", "--place", "test", "--for", "2h", "--why", why]) == 0
    capsys.readouterr()
    assert run(["watch", "silence", "GpuMissing", "--machine", "titan-01.cellar", "--why", "x", "--json"]) == 0
    labels = {"alertname": "GpuMissing", "instance": "titan-01.cellar"}
    assert json.loads(capsys.readouterr().out)["labels"] == labels
    monkeypatch.setattr(watch, "_TEST", 3)
    assert run(["watch", "test", "NodeDown"]) == 6
    assert messages.bodies == []
    capsys.readouterr()

    assert run(["watch", "silence"]) == 0
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [line.split(" until ")[0] for line in lines] == ["GpuMissing titan-01.cellar", "NodeDown test"]
    assert lines[1].endswith(f": {why}")
    monkeypatch.setattr(watch, "_TEST", 30)
    assert run(["watch", "silence", "NodeDown", "--end"]) == 0
    assert run(["watch", "test", "NodeDown"]) == 0
    assert run(["watch", "silence", "NodeDown", "--end"]) == 2
    assert "NodeDown is not silent" in capsys.readouterr().err
