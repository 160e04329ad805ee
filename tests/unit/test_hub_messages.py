"""Messages of the hub: what is news, by curl to a real https server and a real SMTP server, once, and never lost."""

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.programs.hub import messages
from bedplate.programs.hub.messages import news_of
from bedplate.programs.hub.sweep import Record, sweep
from tests.testlab.fakes.laptop import FakeHub
from tests.unit.test_hub_sweep import FakeRecord

NOW = 1_800_000_000.0
HOUR = 3_600
A, B, C = (letter * 32 for letter in "abc")
RELAY = "localhost"


class Relay(ThreadingTCPServer):
    """A mail server with STARTTLS, which keeps logins, recipients and mails; `refusal` is its answer to a mail."""

    daemon_threads = True

    def __init__(self, chat: FakeHub) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.context = chat_context(chat)
        self.has_tls, self.refusal, self.last = True, b"", b"221 2.0.0 bye\r\n"
        self.words: list[bytes] = []
        self.mails: list[bytes] = []
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


def chat_context(chat: FakeHub) -> ssl.SSLContext:
    """Return the TLS of a server with the certificate of the chat."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chat.certificate, chat.certificate.with_name("tls.key"))
    return context


class _Mail(StreamRequestHandler):
    server: Relay

    def finish(self) -> None:
        """End the connection, also that of TLS."""
        self.request.close()
        super().finish()

    def handle(self) -> None:
        """Answer one client."""
        offers, stream = self.server.has_tls, self.request.makefile("rwb")
        stream.write(b"220 relay ESMTP\r\n")
        stream.flush()
        while line := stream.readline():
            verb = line.split()[0].upper()
            if verb == b"STARTTLS" and offers:
                stream.write(b"220 go ahead\r\n")
                stream.flush()
                self.request = self.server.context.wrap_socket(self.request, server_side=True)
                offers, stream = False, self.request.makefile("rwb")
                continue
            if verb == b"DATA" and not self.server.refusal:
                stream.write(b"354 go ahead\r\n")
                stream.flush()
                self.server.mails.append(b"".join(iter(stream.readline, b".\r\n")))
            if verb == b"AUTH":
                stream.write(b"334 \r\n")
                stream.flush()
                line = stream.readline()
            self.server.words.append(line.strip())
            greeting = b"250-relay\r\n250-STARTTLS\r\n250 HELP\r\n" if offers else b"250-relay\r\n250 AUTH PLAIN\r\n"
            answers = {b"EHLO": greeting, b"AUTH": b"235 welcome\r\n", b"QUIT": self.server.last}
            stream.write(answers.get(verb, self.server.refusal or b"250 2.0.0 taken\r\n"))
            stream.flush()


class Hub:
    """A volume with runs of ada (20000) and grace (20001), settings, and the program of the timer."""

    def __init__(self, folder: Path, mlflow: FakeRecord, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.mlflow, self.now = folder, mlflow, NOW
        (folder / "tokens").mkdir()
        (folder / "people").write_text("20000 ada\n20001 grace\n20002 linus\n")
        self.state = folder / "tokens/messages"
        self.settings: dict[str, Any] = {"relay": RELAY, "sender": "hub@lab.example", "people": {}}
        self.write_secrets("")
        patch.setattr(messages, "time", SimpleNamespace(time=lambda: self.now))
        patch.setattr(messages, "SETTINGS", folder / "settings")
        patch.setattr(messages, "Record", lambda: Record(str(mlflow.server_address)))
        patch.setenv("CREDENTIALS_DIRECTORY", str(folder))

    def write_secrets(self, text: str) -> None:
        """Write the file with addresses of webhooks and the login of the relay."""
        (self.folder / "messages").write_text(text)

    def add(self, run: str, uid: int = 20000, age: float = HOUR, **tags: str) -> None:
        """Add a run of a person, who has asked for its token."""
        self.mlflow.add(run, self.now - age, **{"id": f"run-{run[0]}", "machine": "titan-03", **tags})
        with (self.folder / "tokens/runs").open("a") as file:
            file.write(f"{run} {uid}\n")

    def change(self, run: str, status: str = "RUNNING", **tags: str) -> None:
        """Change a run, as its agent does."""
        self.mlflow.runs[run] |= {"status": status, "end": 0 if status == "RUNNING" else self.now}
        self.mlflow.runs[run]["tags"] |= tags

    def minute(self, seconds: float = 60) -> None:
        """Let a minute pass, and start the program."""
        self.now += seconds
        (self.folder / "settings").write_text(json.dumps(self.settings))
        messages.main(self.folder, self.folder / "people")


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[FakeRecord]:
    """Yield a record without runs."""
    with FakeRecord(tmp_path / "socket") as server:
        yield server
        server.shutdown()


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Yield a chat that takes messages, whose certificate curl trusts."""
    with FakeHub(tmp_path, "localhost") as server:
        server.tokens.add("")
        server.answer("/T0/s3cret", {})
        monkeypatch.setenv("CURL_CA_BUNDLE", str(server.certificate))
        yield server
        server.shutdown()


@pytest.fixture
def relay(chat: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Yield a mail server."""
    with Relay(chat) as server:
        monkeypatch.setattr(messages, "_SUBMISSION", server.server_address[1])
        yield server
        server.shutdown()


@pytest.fixture
def hub(tmp_path: Path, mlflow: FakeRecord, chat: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Return a hub whose people have webhooks."""
    made = Hub(tmp_path, mlflow, monkeypatch)
    made.settings["people"] = {"ada": "", "grace": ""}
    url = f"https://localhost:{chat.server_address[1]}/T0/s3cret"
    made.write_secrets(f"# addresses\nada {url}?of=ada\ngrace\t{url}?of=grace\n")
    return made


def texts(chat: FakeHub, person: str = "ada") -> list[str]:
    """Return the messages to a person so far."""
    return [json.loads(body)["text"] for line, _, body in chat.requests if line.endswith(f"?of={person}")]


def test_a_person_hears_of_start_and_end(hub: Hub, chat: FakeHub) -> None:
    """Of a start after two minutes, and of an end with its cause; each once, and others hear nothing."""
    hub.add(A, state="queued")
    hub.minute()
    assert texts(chat) == []

    hub.change(A, state="running")
    hub.minute()
    hub.minute()
    assert texts(chat) == ["run-a running on titan-03 1:02:00 after it was sent"]

    # The agent writes the cause, then the status.
    hub.change(A, state="ended", cause="the program ended with exit code 1")
    hub.minute()
    hub.change(A, "FAILED")
    hub.minute()
    hub.minute()
    assert texts(chat)[1:] == ["run-a failed on titan-03 after 1:04:00: the program ended with exit code 1"]
    assert texts(chat, "grace") == []
    run = chat.bodies[1]["runs"][0]
    assert (run["run"], run["name"], run["state"], run["machine"]) == (A, "run-a", "failed", "titan-03")


def test_a_short_run_is_told_on_request_only(hub: Hub, chat: FakeHub) -> None:
    """Who watches it needs no message: under five minutes only with `--notify`, even if it ended between two looks."""
    hub.add(A, age=20, state="ended", cause="done")
    hub.add(B, age=20, state="ended", cause="done", notify="always")
    for run in (A, B):
        hub.change(run, "FINISHED")

    hub.minute()

    assert texts(chat) == ["run-b ended on titan-03 after 0:00:20: done"]


def test_a_trial_of_a_search_is_not_told() -> None:
    """The run that drives it is."""
    run = {"run": "1", "name": "ada-lr-0001", "status": "FINISHED", "start": 1.0, "end": 9_000.0}

    assert news_of(run, 9_000)
    assert not news_of({**run, "study": "ada-lr"}, 9_000)


def test_a_run_whose_machine_died_is_told(hub: Hub, chat: FakeHub) -> None:
    """The sweep ends it at its last sign of life, hours ago. Another was never started."""
    seen = str(int((NOW - 2 * HOUR) * 1000))
    hub.add(A, age=3 * HOUR, state="running", machine="train-7", seen=seen)
    hub.add(B, age=30 * HOUR, state="sent")
    hub.minute()
    fleet = {"time": hub.now, "faults": [], "machines": {"titan-03": {}}}

    sweep(Record(str(hub.mlflow.server_address)), fleet, hub.now)
    hub.minute()

    start, end = texts(chat)
    assert start == "run-a running on train-7 3:01:00 after it was sent"
    assert sorted(end.splitlines()) == [
        "run-a failed on train-7 after 1:00:00: its machine train-7 has ended",
        "run-b failed on titan-03 after 0:00:00: it was never started",
    ]


def test_a_person_gets_one_message_a_minute(hub: Hub, chat: FakeHub) -> None:
    """Several runs are in one message, of which no chat refuses the length; a second start within a minute waits."""
    for number in range(10):
        hub.add(f"{number}" * 32, state="ended", cause="x" * 5_000)
        hub.change(f"{number}" * 32, "KILLED")
    hub.minute()
    hub.add(A, state="ended", cause="done")
    hub.change(A, "FINISHED")
    hub.minute(30)

    (text,) = texts(chat)
    assert len(text) <= 2_000
    assert text.count(" was stopped on titan-03") == 8
    assert text.endswith("\nand 2 more: bp runs")

    hub.minute(30)
    assert texts(chat)[1:] == ["run-a ended on titan-03 after 1:00:00: done"]


def test_a_refused_message_is_tried_for_an_hour(hub: Hub, chat: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    """Each minute, until it is taken, and not again then; a redirect is a refusal. The journal has no address."""
    hub.add(A, state="ended", cause="done")
    hub.change(A, "FINISHED")
    away = {"Location": "/T0/s3cret"}
    chat.first = [(503, {}, b"away"), (302, away, b""), (404, {}, b"")]

    for _ in range(5):
        hub.minute()

    assert len(texts(chat)) == len(chat.requests) == 4
    error = capfd.readouterr().err
    assert error.splitlines() == [
        f"no message to ada: exit code {code} of curl, status {status}"
        for code, status in ((22, 503), (47, 302), (22, 404))
    ]
    hub.add(B, state="ended", cause="done")
    hub.change(B, "FINISHED")
    chat.first = [(503, {}, b"")] * 9
    for seconds in (60, 3_500, 200, 60):
        hub.minute(seconds)
    assert len(texts(chat)) - 4 == 2


def test_a_slow_receiver_delays_nobody(hub: Hub, chat: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ten seconds in all, however it answers; others have their message meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub.write_secrets(
            f"ada https://localhost:{silent.getsockname()[1]}/x\n"
            f"grace https://localhost:{chat.server_address[1]}/T0/s3cret?of=grace\n"
        )
        monkeypatch.setattr(messages, "_CURL", tuple("1" if word == "10" else word for word in messages._CURL))  # noqa: SLF001
        for run, uid in ((A, 20000), (B, 20001)):
            hub.add(run, uid, state="ended", cause="done")
            hub.change(run, "FINISHED")
        start = time.monotonic()

        hub.minute()

    assert time.monotonic() - start < 5
    assert len(texts(chat, "grace")) == 1


def test_a_restart_repeats_nothing(hub: Hub, chat: FakeHub) -> None:
    """What was told is in a file; a run that was going on meanwhile is told when the hub is back, however late."""
    hub.add(A, state="ended", cause="done")
    hub.change(A, "FINISHED")
    hub.add(B, state="running")
    hub.minute()
    hub.change(B, "FINISHED", state="ended", cause="done")
    hub.minute(10 * HOUR)
    hub.minute()

    assert [len(text.splitlines()) for text in texts(chat)] == [2, 1]


def test_the_owner_is_who_has_the_token(hub: Hub, chat: FakeHub) -> None:
    """Colleagues can write the tag `owner`: it sends nobody a message. People without `notify` get none."""
    hub.add(A, 20001, owner="ada", state="ended", cause="done")
    hub.add(B, 20002, owner="ada", state="ended", cause="done")
    hub.mlflow.add(C, NOW - HOUR, owner="ada", state="ended", cause="done")
    for run in (A, B, C):
        hub.change(run, "FINISHED")

    hub.minute()

    assert (len(texts(chat)), len(texts(chat, "grace"))) == (0, 1)


@pytest.mark.parametrize(
    "cause",
    [
        "<!channel> @everyone @here",
        "a\r\nBcc: eve@evil.example\r\n\r\nbody",
        "[x](https://evil.example) **b** `c`",
        "\x1b[2J\u202e",
    ],
)
def test_a_text_of_colleagues_is_plain(cause: str) -> None:
    """Neither mentions, markup, links and lines of a chat, nor headers of a mail."""
    run = {"run": A, "name": cause, "id": cause, "machine": cause, "status": "FAILED", "state": "ended", "cause": cause}

    news = news_of({**run, "start": NOW - HOUR, "end": NOW}, NOW)

    assert not set("<>@[]*`#|~!&\\\r\n\x1b\u202e") & set("".join(map(str, news.values())))
    assert "//" not in news["text"]


@pytest.mark.parametrize("moment", [-(2**60), 2**60])
def test_a_time_of_colleagues_stops_no_message(moment: int, hub: Hub, chat: FakeHub) -> None:
    """They can write when a run started or ended: others are told nevertheless."""
    for run in (A, B):
        hub.add(run, state="ended", cause="done")
        hub.change(run, "FINISHED")
    hub.mlflow.runs[A]["end" if moment > 0 else "start"] = moment

    hub.minute()

    assert "run-b ended on titan-03 after 1:00:00: done" in texts(chat)[0].splitlines()


def test_mail_leaves_by_the_relay_with_tls(hub: Hub, relay: Relay) -> None:
    """With the login that only the hub has; headers say that a program has sent it."""
    hub.settings["people"] = {"ada": "ada@lab.example"}
    hub.write_secrets(f"{RELAY} user:pass:word\n")
    hub.add(A, state="ended", cause="exit code 1; why=x")
    hub.change(A, "FAILED")

    hub.minute()
    hub.minute()

    (mail,) = map(message_from_bytes, relay.mails)
    line = "run-a failed on titan-03 after 1:00:00: exit code 1; why=x"
    assert (mail["From"], mail["To"], mail["Subject"]) == ("hub@lab.example", "ada@lab.example", f"bedplate: {line}")
    assert (mail["Auto-Submitted"], bool(mail["Date"])) == ("auto-generated", True)
    assert [str(part.get_payload()).strip() for part in mail.walk() if not part.is_multipart()] == [line]
    assert base64.b64encode(b"\0user\0pass:word") in relay.words
    assert b"RCPT TO:<ada@lab.example>" in relay.words


def test_no_mail_leaves_without_tls(
    hub: Hub, relay: Relay, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A relay without STARTTLS, or with another certificate, sees no address and no login."""
    hub.settings["people"] = {"ada": "ada@lab.example"}
    hub.write_secrets(f"{RELAY} user:pass\n")
    hub.add(A, state="ended", cause="done")
    hub.change(A, "FAILED")
    relay.has_tls = False
    hub.minute()
    relay.has_tls = True
    monkeypatch.delenv("CURL_CA_BUNDLE")
    hub.minute()

    assert not any(word.startswith((b"AUTH", b"MAIL", b"DATA")) for word in relay.words)
    assert capfd.readouterr().err.count("no message to ada") == 2


def test_a_mail_is_sent_once(hub: Hub, relay: Relay) -> None:
    """A refused one again; one that was taken not, even if the relay then fails."""
    hub.settings["people"] = {"ada": "ada@lab.example"}
    hub.add(A, state="ended", cause="done")
    hub.change(A, "FAILED")
    relay.refusal = b"450 later\r\n"
    hub.minute()
    relay.refusal, relay.last = b"", b"421 failed\r\n"
    for _ in range(3):
        hub.minute()

    assert len(relay.mails) == 1


def test_a_webhook_is_https(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    """Plain http, files and other protocols are refused, and so is a person without a line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for line in (f"ada http://127.0.0.1:{listener.getsockname()[1]}/x", "ada file:///etc/passwd", "ada", ""):
            hub.write_secrets(f"{line}\n")
            hub.add(A, state="ended", cause="done")
            hub.change(A, "FAILED")
            hub.state.unlink(missing_ok=True)
            hub.minute()
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()

    assert len(capfd.readouterr().err.splitlines()) == 4
