"""The hub's metrics and alerts: the real Prometheus and Alertmanager with its settings, and its program of alerts."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from bedplate.programs.hub import alerts, messages
from tests.testlab.fakes.laptop import FakeHub
from tests.testlab.machines.metrics import Exporter, Watch
from tests.testlab.network.netlab import until
from tests.testlab.run import need_program

DOWN = {
    "name": "test",
    "interval": "1s",
    "rules": [
        {
            "alert": "NodeMissing",
            "expr": 'up{job="node"} == 0',
            "labels": {"severity": "page"},
            "annotations": {"summary": "{{ $labels.instance }} does not answer", "runbook": "node-missing"},
        },
        {
            "alert": "PlaceAway",
            "expr": 'max by (place) (up{job="node", place="barn"}) == 0',
            "labels": {"severity": "page", "scope": "place"},
            "annotations": {"summary": "{{ $labels.place }} is away"},
        },
        {
            "alert": "GpuHeldIdle",
            "expr": "held_usd > 1",
            "labels": {"severity": "person"},
            "annotations": {"summary": "{{ $labels.run }} holds an idle GPU"},
        },
    ],
}


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Callable[[], Exporter]]:
    """Yield a function that starts an exporter."""
    started: list[Exporter] = []

    def start() -> Exporter:
        started.append(Exporter(tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Yield a chat that takes messages, and settings for messages to ada, who gets alerts, and grace."""
    settings = {"relay": None, "sender": None, "people": {"ada": "", "grace": ""}, "alerts": ["ada"]}
    (tmp_path / "settings").write_text(json.dumps(settings))
    monkeypatch.setattr(messages, "SETTINGS", tmp_path / "settings")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with FakeHub(tmp_path, "localhost") as server:
        server.tokens.add("")
        server.answer("/T0/ada", {})
        server.answer("/T0/grace", {})
        lines = [f"{name} https://localhost:{server.server_address[1]}/T0/{name}\n" for name in ("ada", "grace")]
        (tmp_path / "messages").write_text("".join(lines))
        monkeypatch.setenv("CURL_CA_BUNDLE", str(server.certificate))
        yield server
        server.shutdown()


@pytest.fixture
def watch(tmp_path: Path, chat: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Yield running daemons, whose alerts the hub's program takes."""
    need_program("prometheus")
    need_program("prometheus-alertmanager")
    monkeypatch.setattr(alerts.AlertServer, "timeout", 0.2)
    monkeypatch.setattr(alerts, "_IDLE", 0)
    monkeypatch.setattr(messages, "_PAUSE", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    watch = Watch(tmp_path, listener.getsockname()[1])
    watch.write([DOWN])
    ended: list[bool] = []

    def serve() -> None:
        # systemd starts the program again for the next alert.
        while not ended:
            alerts.serve_alerts(tmp_path / "alerts", listener)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    with watch.running():
        yield watch
    ended.append(True)
    thread.join(10)
    listener.close()


def told(chat: FakeHub, person: str) -> str:
    """Return the texts of all messages to a person."""
    bodies = [body for path, _, body in chat.requests if path.endswith(f"/T0/{person}")]
    return "\n".join(json.loads(body)["text"] for body in bodies)


def test_a_target_that_dies_becomes_a_message(watch: Watch, exporter: Callable[[], Exporter], chat: FakeHub) -> None:
    """It is told once, and its end too; a person hears of their own alert, and a place that is away of nothing else."""
    node, other = exporter(), exporter()
    other.text = 'held_usd{person="grace",run="grace-1"} 3\n'
    places = {"titan__cellar": (node.target, {"place": "cellar", "role": "workbench"})}
    places |= {"box__attic": (other.target, {"place": "attic"})}
    watch.set_targets("node", **places)
    until(lambda: len(watch.query('up{job="node"} == 1')) == 2, 20, "no target answers")

    node.end()
    nowhere = {"place": "barn"}
    barn = {"one__barn": ("127.0.0.1:1", nowhere), "two__barn": ("127.0.0.1:1", nowhere)}
    watch.set_targets("node", **places, **barn)

    until(lambda: "titan.cellar does not answer" in told(chat, "ada"), 30, "no message")
    until(lambda: "barn is away" in told(chat, "ada"), 30, "no message about a place")
    until(lambda: "grace-1 holds an idle GPU" in told(chat, "grace"), 30, "no message to a person")
    watch.set_targets("node", titan__cellar=(other.target, {"place": "cellar", "role": "workbench"}))
    until(lambda: "ended: titan.cellar does not answer" in told(chat, "ada"), 30, "no message about the end")
    assert told(chat, "ada").count("page: titan.cellar does not answer") == 1
    assert ".barn" not in told(chat, "ada")
    assert "grace" not in told(chat, "ada")
