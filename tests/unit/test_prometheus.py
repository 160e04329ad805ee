"""The hub's metrics and alerts: the real Prometheus and Alertmanager with its settings, and its program of alerts."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bedplate.monitoring.layer import SAMPLE_LIMIT
from bedplate.programs.hub import alerts, messages
from tests.testlab.fakes.laptop import FakeHub
from tests.testlab.machines.hub import RUN, running_hub, token
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
def program(tmp_path: Path, chat: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the port of the program of alerts."""
    del chat
    monkeypatch.setattr(alerts.AlertServer, "timeout", 0.2)
    monkeypatch.setattr(alerts, "_IDLE", 0)
    monkeypatch.setattr(messages, "_PAUSE", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    ended: list[bool] = []

    def serve() -> None:
        # systemd starts the program again for the next alert.
        while not ended:
            alerts.serve_alerts(tmp_path / "alerts", listener)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    ended.append(True)
    thread.join(10)
    listener.close()


@pytest.fixture
def watch(tmp_path: Path, program: int) -> Iterator[Watch]:
    """Yield running daemons, whose alerts the hub's program takes."""
    need_program("prometheus")
    need_program("prometheus-alertmanager")
    watch = Watch(tmp_path, program)
    watch.write([DOWN])
    with watch.running():
        yield watch


def received(chat: FakeHub, person: str) -> str:
    """Return the texts of all messages to a person."""
    bodies = [body for path, _, body in chat.requests if path.endswith(f"/T0/{person}")]
    return "\n".join(json.loads(body)["text"] for body in bodies)


def test_a_target_that_dies_becomes_a_message(watch: Watch, exporter: Callable[[], Exporter], chat: FakeHub) -> None:
    """It is sent once, and its end too; a person hears of their own alert, and a place that is away of nothing else."""
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

    until(lambda: "titan.cellar does not answer" in received(chat, "ada"), 30, "no message")
    until(lambda: "barn is away" in received(chat, "ada"), 30, "no message about a place")
    until(lambda: "grace-1 holds an idle GPU" in received(chat, "grace"), 30, "no message to a person")
    watch.set_targets("node", titan__cellar=(other.target, {"place": "cellar", "role": "workbench"}))
    until(lambda: "ended: titan.cellar does not answer" in received(chat, "ada"), 30, "no message about the end")
    assert received(chat, "ada").count("page: titan.cellar does not answer") == 1
    assert ".barn" not in received(chat, "ada")
    assert "grace" not in received(chat, "ada")


def test_a_person_queries_metrics_by_the_hub(watch: Watch, exporter: Callable[[], Exporter], tmp_path: Path) -> None:
    """With the token that reads records, in the address or in a body; a run, and nobody, read none."""
    need_program("nginx")
    node = exporter()
    node.text = 'bedplate_expected{machine="a.b",place="b",role="files",group="g"} 1\nlies{place="x",instance="y"} 1\n'
    watch.set_targets("node", hub__us_west=(node.target, {"place": "here"}))
    until(lambda: bool(watch.query("lies")), 20, "no target answers")
    (tmp_path / "front").mkdir()
    api = "/prometheus/api/v1/query"

    with running_hub(tmp_path / "front", watch.port) as hub:
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        read = hub.ask("GET", f"{api}?query=lies", token())
        posted = hub.ask("POST", api, token(), b"query=lies", **form)
        statuses = [hub.ask("GET", f"{api}?query=up", text).status for text in ("", token(scope=f"run:{RUN}"))]
        others = [hub.ask("GET", f"/prometheus/{name}", token()).status for name in ("metrics", "api/v1/targets")]
        (tmp_path / "front/tokens/removed").write_text("20000\n")
        removed = hub.ask("GET", f"{api}?query=up", token()).status

    found = [answer.document["data"]["result"][0]["metric"] for answer in (read, posted)]
    assert found[0] == found[1]
    assert found[0] == {"__name__": "lies", "instance": "hub.us_west", "job": "node", "place": "here"} | {
        "exported_instance": "y"
    }
    assert (statuses, others, removed) == ([401, 403], [403, 403], 403)


def test_labels_of_targets_win_but_on_the_hub(watch: Watch, exporter: Callable[[], Exporter]) -> None:
    """Root of one machine cannot claim metrics of another one; the hub reports about all, in metrics of these names."""
    node = exporter()
    node.text = "".join(f'{name}{{machine="a.b",place="b",role="files"}} 1\n' for name in ("bedplate_expected", "lies"))
    watch.set_targets(
        "node",
        **{"hub.us-west-2": (node.target, {"place": "us-west-2", "role": "hub"})},
        other__attic=(node.target.replace("127.0.0.1", "localhost"), {"place": "attic", "role": "worker"}),
    )
    until(lambda: len(watch.query("lies")) == 2, 20, "no target answers")

    found = {
        (labels["__name__"], labels["instance"]): (labels["place"], labels["role"])
        for labels, _ in watch.query('{__name__=~"lies|bedplate_expected"}')
    }
    assert found == {
        ("bedplate_expected", "hub.us-west-2"): ("b", "files"),
        ("bedplate_expected", "other.attic"): ("attic", "worker"),
        ("lies", "hub.us-west-2"): ("us-west-2", "hub"),
        ("lies", "other.attic"): ("attic", "worker"),
    }


def test_an_exporter_that_is_huge_or_speaks_nonsense_is_down(watch: Watch, exporter: Callable[[], Exporter]) -> None:
    """One with too many samples, with a label of 1 kB, or without metrics harms no other target."""
    texts = [
        "ok 1\n",
        "".join(f'huge{{n="{n}"}} 1\n' for n in range(SAMPLE_LIMIT + 1)),
        "<html>\n",
        f'x{{n="{"y" * 999}"}} 1\n',
    ]
    targets = {}
    for number, text in enumerate(texts):
        node = exporter()
        node.text = text
        targets[f"n{number}"] = (node.target, {"place": "attic"})
    watch.set_targets("node", **targets)

    until(lambda: len(watch.query('up{job="node"} == 1')) == 1, 20, "no target answers")
    until(lambda: len(watch.query('up{job="node"} == 0')) == 3, 20, "a target is not down")
    assert watch.query("count(huge)") == []


def post(port: int, body: bytes, path: str = "/bedplate/alerts") -> int:
    """Send a notification as Alertmanager does; return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().status
    finally:
        connection.close()


def alert(number: int, status: str = "firing", **labels: str) -> dict[str, Any]:
    """Return an alert of a notification."""
    names = {"alertname": "NodeMissing", "severity": "page", "place": "attic", **labels}
    facts = {"status": status, "fingerprint": f"{number:016x}", "startsAt": "2026-11-28T12:00:00Z"}
    return {**facts, "labels": names, "annotations": {"summary": f"machine {number} does not answer"}}


def test_many_alerts_are_one_message(program: int, chat: FakeHub) -> None:
    """500 of a place: the first eight, and how many more. The same notification again tells nothing."""
    body = json.dumps({"alerts": [alert(number) for number in range(500)]}).encode()

    assert [post(program, body) for _ in range(3)] == [200, 200, 200]

    until(lambda: bool(received(chat, "ada")), 20, "no message")
    assert post(program, json.dumps({"alerts": [alert(3, "resolved")]}).encode()) == 200
    until(lambda: "ended: machine 3" in received(chat, "ada"), 20, "no message about the end")
    lines = received(chat, "ada").splitlines()
    assert lines[:2] == ["page: machine 0 does not answer", "page: machine 1 does not answer"]
    assert lines[8:] == ["and 492 more: bp ui grafana", "ended: machine 3 does not answer"]


def test_texts_of_alerts_are_no_markup(program: int, chat: FakeHub) -> None:
    """Names of runs and labels of people are in them: no mention, link or line break reaches a chat."""
    bad = alert(1, person="grace", severity="person")
    bad["annotations"]["summary"] = "<!channel> @everyone https://x.example/\nrun"

    post(program, json.dumps({"alerts": [bad]}).encode())

    until(lambda: bool(received(chat, "grace")), 20, "no message")
    assert received(chat, "grace") == "person: ?!channel? ?everyone https:/?x.example/?run".replace("!", "?")
    assert received(chat, "ada") == ""


def test_alerts_wait_for_a_receiver_that_is_away(program: int, chat: FakeHub, tmp_path: Path) -> None:
    """They are on the disk before the answer, and are sent once, when it is back; people without `notify` get none."""
    chat.is_away = True
    body = json.dumps({"alerts": [alert(1), alert(2, person="linus", severity="person")]}).encode()
    assert post(program, body) == 200
    assert "machine 1" in (tmp_path / "alerts").read_text()

    chat.is_away = False

    until(lambda: bool(received(chat, "ada")), 20, "no message")
    assert received(chat, "ada") == "page: machine 1 does not answer"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"alerts": 1}', b'{"alerts": [{}]}', b"[" * 100_000, b'{"alerts": [[]]}']
)
def test_what_is_no_notification_is_refused(program: int, body: bytes, chat: FakeHub) -> None:
    """The program goes on."""
    assert post(program, body) == 400
    assert post(program, b'{"alerts": []}', "/") == 400
    assert post(program, b'{"alerts": []}') == 200
    assert chat.requests == []
