"""The hub's front on this machine: the real nginx with the role's settings, the check, and a stand-in for MLflow."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from typing import Any

from bedplate.plan.hub import PROMETHEUS_PORT
from bedplate.programs.hub.__main__ import Hub, serve
from bedplate.programs.hub.tokens import Token, sign
from roles.hub.role import SITE
from roles.hub.role import Hub as HubRole
from tests.testlab.network.netlab import until

HOST = "hub.lab.internal"
PEOPLE = {20000: "ada", 20001: "grace"}
ADA, GRACE = PEOPLE
KEY, FORMER = b"k" * 64, b"f" * 64
RUN, OTHER = "a" * 32, "b" * 32
FILES = "/api/2.0/mlflow-artifacts/artifacts"
PACK = f"{FILES}/packs/ada/{'1' * 40}-0.pack"


def role_text(path: str) -> str:
    """Return the text of a file of the role."""
    return next(file.text for file in HubRole(HOST, PEOPLE).files() if file.path == path)


def make_certificate(folder: Path) -> None:
    """Make key and certificate with the commands of the machine."""
    text = (Path(__file__).parents[3] / "roles/hub/hub-keys").read_text()
    commands = text.replace("/srv/hub", str(folder))
    # Accounts and groups are those of the machine.
    commands = "\n".join(line for line in commands.splitlines() if "--owner" not in line)
    subprocess.run(["sh", "-s", HOST], input=commands, text=True, check=True, cwd=folder)


class _Record(BaseHTTPRequestHandler):
    """Answers each request with what it has got; `runs/get` with the tags of its run."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        tags: Mapping[str, str] = self.server.tags  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        run = self.path.partition("run_id=")[2]
        document: Mapping[str, Any] = {
            "run": {"data": {"tags": [{"key": "bedplate.id", "value": tags.get(run, "")}]}},
            "path": self.path,
            "headers": dict(self.headers),
            "bytes": len(body),
        }
        answer = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _RecordServer(ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, tags: Mapping[str, str]) -> None:
        super().__init__(str(path), _Record)
        self.tags = tags


@dataclass
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:  # noqa: ANN401
        """The JSON of the body."""
        return json.loads(self.body)


@dataclass
class RunningHub:
    """A running hub."""

    folder: Path
    port: int
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> ssl.SSLContext:
        """TLS that trusts this hub's certificate, and nothing else."""
        return ssl.create_default_context(cafile=self.folder / "keys/tls.crt")

    @property
    def files(self) -> Path:
        """The folder of packs and artefacts."""
        return self.folder / "artifacts"

    @property
    def logs(self) -> str:
        """All that nginx has logged."""
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection to nginx, under the name of the hub."""
        connection = http.client.HTTPSConnection(HOST, context=self.context, timeout=20)
        connection.sock = self.context.wrap_socket(
            socket.create_connection(("127.0.0.1", self.port)), server_hostname=HOST
        )
        return connection

    def ask(self, method: str, target: str, token: str = "", body: Any = None, **headers: str) -> Answer:  # noqa: ANN401
        """Send a request, whose target is sent as it is."""
        connection = self.connect()
        try:
            connection.putrequest(method, target, skip_host="Host" in headers)
            if token:
                connection.putheader("Authorization", f"Bearer {token}")
            if body is not None and "Transfer_Encoding" not in headers:
                connection.putheader("Content-Length", str(len(body)))
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())
        finally:
            connection.close()


def token(uid: int = ADA, scope: str = "person", seconds: float = 3600, key: bytes = KEY) -> str:
    """Return a token."""
    return sign(Token(uid, int(time.time() + seconds), scope), key)


@contextmanager
def running_hub(folder: Path, prometheus: int = PROMETHEUS_PORT) -> Iterator[RunningHub]:
    """Run nginx, the check and the stand-in, in front of Prometheus on a port, and of Grafana on `folder/grafana`."""
    for name in ("artifacts", "tokens", "uploads", "log"):
        (folder / name).mkdir()
    make_certificate(folder)
    (folder / "people").write_text("".join(f"{uid} {name}\n" for uid, name in PEOPLE.items()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        hub = RunningHub(folder, free.getsockname()[1])
    record = _RecordServer(folder / "record", hub.tags)
    Thread(target=record.serve_forever, daemon=True).start()
    listeners = []
    for name in ("check", "mint"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / name))
        (folder / name).chmod(0o666)
        listener.listen(64)
        listeners.append(listener)
    program = Hub((KEY, FORMER), folder, folder / "people", str(folder / "record"))
    Thread(target=serve, args=(program, listeners), daemon=True).start()
    text = role_text(SITE).replace("/srv/hub", str(folder)).replace("/run/mlflow/socket", str(folder / "record"))
    text = text.replace("/run/bedplate-hub", str(folder)).replace("/var/log/nginx", str(folder))
    text = text.replace("listen 443", f"listen 127.0.0.1:{hub.port}").replace("user www-data;", "daemon off;")
    text = text.replace("/run/nginx.pid", str(folder / "pid")).replace("/run/grafana/socket", str(folder / "grafana"))
    text = text.replace(f"127.0.0.1:{PROMETHEUS_PORT}", f"127.0.0.1:{prometheus}")
    if os.geteuid() == 0:
        text = f"user root;\n{text}"
    (folder / "nginx.conf").write_text(text)
    command = [str(shutil.which("nginx")), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command) as nginx:
        try:
            until(lambda: _is_open(hub.port), 10, "nginx does not listen")
            yield hub
        finally:
            nginx.terminate()
    record.shutdown()
    record.server_close()


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
