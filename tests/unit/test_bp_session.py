"""Sessions as people have them: bp, a fake ssh with the agent behind it, and the program of a session."""

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.fakes.runs import AgentRun, RunHub, wait_for
from tests.unit.test_agent_start import ID, Machine
from tests.unit.test_bp import Browser
from tests.unit.test_bp_run import RUN_TOKEN, SSH, Record, hub, laptop, record

__all__ = ["hub", "laptop", "record"]

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# A page that answers with what it was asked, and a WebSocket that answers in capitals.
_PAGE = """
import http.server, json, os, socketserver, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n\\r\\n")
            while data := self.connection.recv(4096):
                self.wfile.write(data.upper())
            return
        answer = json.dumps([self.command, self.path, dict(self.headers), body.decode()]).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "_xsrf=1; Path=/")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET
    def address_string(self):
        return "person"
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
print("page starts", flush=True)
Server(os.environ["BEDPLATE_PAGE"], Page).serve_forever()
"""


@pytest.fixture
def machine(laptop: Laptop, hub: FakeHub, tmp_path: Path) -> Machine:
    """Return a machine that the laptop reaches by ssh, whose shell prints a line first."""
    return machine_of(laptop, hub, tmp_path)


def machine_of(laptop: Laptop, hub: FakeHub, tmp_path: Path, python: str = "") -> Machine:
    """Return a machine that the laptop reaches by ssh."""
    machine = Machine(tmp_path, python)
    machine.environment["PATH"] += f":{Path(sys.executable).parent}"
    hub.tokens.add(RUN_TOKEN)
    for path in ("/bedplate/end", "/bedplate/stop"):
        hub.answer(path, {})
    words = shlex.join((*(f"{name}={value}" for name, value in machine.environment.items()), *machine.command))
    agent = f'*bedplate-agent*) echo hello; eval exec env {shlex.quote(words)} "${{*##*bedplate-agent }}";;'
    laptop.ssh_answers(SSH.replace("*bedplate-agent*)", f"{agent}\n*never*)"))
    return machine


class Board:
    """A session with a page on that machine; its record is that of the laptop's hub."""

    def __init__(self, machine: Machine, hub: RunHub, record: Record, **given: object) -> None:
        code, command = {"page.py": _PAGE.encode()}, ["python3", "page.py"]
        run = AgentRun(hub, machine.base / ID, code, command, session="board", **{"idle": 3600, **given})
        self.machine, self.hub = machine, hub
        machine.agent("start", given=run.given)
        record.add(ID, session="board", machine="titan-03.cellar")

    def stop(self) -> None:
        """Stop it, and wait for its end."""
        self.machine.agent("stop", ID)
        wait_for((self.machine.folder / "recorded").exists)


@pytest.fixture
def board(machine: Machine, record: Record, tmp_path: Path) -> Iterator[Board]:
    """Yield a session with a page."""
    (tmp_path / "agents").mkdir()
    with RunHub(tmp_path / "agents") as hub:
        board = Board(machine, hub, record)
        yield board
        board.stop()


@pytest.fixture
def browser(laptop: Laptop, board: Board) -> Iterator[Browser]:
    """Yield a browser at the page, which ends by Ctrl-C."""
    del board
    browser = Browser(laptop, "session", "open", ID)
    yield browser
    browser.process.send_signal(signal.SIGINT)
    output, errors = browser.process.communicate(timeout=20)
    assert (browser.process.returncode, output, errors.count("\n")) == (0, "", 1), errors


def test_the_page_of_a_session_is_shown(browser: Browser) -> None:
    """With all methods and its own cookies; it gets neither a cookie of bp nor a token, and the host of the browser."""
    assert browser.ask("/").status == 403
    browser.log_in()

    answers = [browser.ask("/api?x=1", method, b"body", Origin=f"http://{browser.host}") for method in _METHODS]

    for method, answer in zip(_METHODS, answers, strict=True):
        assert answer.status == 200
        line, path, headers, body = json.loads(answer.body)
        assert (line, path, body) == (method, "/api?x=1", "body")
        assert (headers["Host"], headers["Cookie"], headers["Origin"]) == (
            browser.host,
            "other=1",
            f"http://{browser.host}",
        )
        assert "Authorization" not in headers
        assert answer.headers["Set-Cookie"] == "_xsrf=1; Path=/"


def test_a_web_socket_and_a_large_body_pass(browser: Browser) -> None:
    """Bytes of both sides at the same time as other requests, over one connection of ssh."""
    browser.log_in()
    host, port = browser.host.split(":")
    head = f"GET /live HTTP/1.1\r\nHost: {browser.host}\r\nCookie: {browser.cookie}\r\n"
    with socket.create_connection((host, int(port)), 20) as client, client.makefile("rb") as answers:
        client.sendall(f"{head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
        assert b" 101 " in answers.readline()
        while answers.readline() != b"\r\n":
            pass
        for data in (b"one", b"two" * 100_000):
            client.sendall(data)
            body = "x" * (8 << 20)

            answer = browser.ask("/", "PUT", body.encode())

            assert json.loads(answer.body)[3] == body
            assert answers.read(len(data)) == data.upper()


def test_a_lost_connection_is_made_again(browser: Browser, laptop: Laptop, board: Board) -> None:
    """The next request of the page opens another one; a session that has ended is named."""
    browser.log_in()
    (ssh,) = Path(f"/proc/{browser.process.pid}/task/{browser.process.pid}/children").read_text().split()
    os.kill(int(ssh), signal.SIGKILL)
    wait_for(lambda: browser.ask("/").status == 200)

    assert sum("agent connect" in line for line in laptop.logins) == 2
    board.stop()
    answers = [browser.ask("/") for _ in range(2)]

    assert [answer.status for answer in answers] == [502, 502]
    assert b"has no page now" in answers[1].body
