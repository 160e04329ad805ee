"""A laptop with `bp`, its Python and a fake ssh, and a stand-in for the hub: an https server with a certificate."""

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, local
from time import sleep, time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bedplate.nodes.invitation import bp_program

HOST = "hub.lab.internal"
TOKEN, LATER_TOKEN = (f"20001.1893456000.person.{letter * 24}" for letter in "AB")
Answer = tuple[int, Mapping[str, str], bytes]
_SSH = """#!/bin/sh
PATH=/usr/bin:/bin
here=$(dirname "$0")
echo "$@" >>"$here/ssh.log"
[ "$1" != -V ] || { cat "$here/version" >&2; exit; }
. "$here/answer"
"""


def hub_certificate(host: str, key: ec.EllipticCurvePrivateKey, days: int = 10) -> bytes:
    """Return a certificate like the hub's, which ends in so many days."""
    name, end = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), datetime.now(UTC) + timedelta(days)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(end - timedelta(20)).not_valid_after(end)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


class FakeHub(ThreadingHTTPServer):
    """Answers by path, else 404; the first of `first` come before them. It accepts the tokens of `tokens`.

    `clock` is how far its clock is off, `pause` the seconds after each byte of an answer; `is_away` ends connections.
    """

    daemon_threads = True
    # With the default of 5, connections wait for seconds on a busy machine.
    request_queue_size = 128

    def __init__(
        self,
        folder: Path,
        host: str = HOST,
        *,
        days: int = 10,
        address: str = "127.0.0.1",
        listener: socket.socket | None = None,
    ) -> None:
        super().__init__((address, 0), _Requests)
        if listener:
            self.socket.close()
            listener.listen()
            self.socket, self.server_address = listener, listener.getsockname()
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        self.first: list[Answer] = []
        self.tokens = {TOKEN}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.clock = self.pause = 0.0
        self.is_away = False
        self.sockets: list[socket.socket] = []
        self.request = local()
        """Of the thread of a request: its `target`, with the query, and its `token`."""
        self.certificate = folder / "tls.pem"
        key, file = ec.generate_private_key(ec.SECP256R1()), folder / "tls.key"
        self.certificate.write_bytes(hub_certificate(host, key, days))
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, file)
        # A client that refuses the certificate must not stop the server: each connection does its own handshake.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_close(self) -> None:
        """End, also after a test that failed."""
        self.shutdown()
        super().server_close()

    def cluster_of(self, person: str) -> Mapping[str, object]:
        """Return how a person reaches this as the API of a cluster."""
        script = f"echo '{json.dumps({'status': {'token': TOKEN}})}'"
        facts = {"server": f"https://localhost:{self.server_address[1]}", "authority": self.certificate.read_text()}
        return {**facts, "namespace": person, "uid": 20001, "gids": [], "token": script}

    def answer(self, path: str, document: object, status: int = 200) -> None:
        """Answer a path with JSON from now on."""
        self.answers[path] = (status, {"Content-Type": "application/json"}, json.dumps(document).encode())

    def verify_request(self, request: Any, client_address: object) -> bool:  # noqa: ANN401  as the base class
        """Keep each connection, to end it."""
        del client_address
        self.sockets.append(request)
        return not self.is_away

    def end_connections(self) -> None:
        """End all connections."""
        for connection in self.sockets:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Return the answer to a request with a token."""
        del method, body
        found = self.answers.get(path, (404, {}, b'{"message": "no such thing"}'))
        return found() if callable(found) else found

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that refuse the certificate."""

    @property
    def bodies(self) -> list[Any]:
        """The documents that clients have sent."""
        return [json.loads(body) for _, _, body in self.requests if body]


class _Requests(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request as the test has said."""
        server, length = self.server, int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(length)
        server.requests.append((f"{self.command} {self.path}", dict(self.headers.items()), data))
        if self.headers.get("Upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := self.connection.recv(4096):
                self.wfile.write(data.upper())
            return
        server.request.target, server.request.token = self.path, self.headers.get("Authorization", "")
        answer: Answer = (401, {}, b'{"message": "the token has expired"}')
        if self.headers.get("Authorization", "").removeprefix("Bearer ") in server.tokens:
            answer = server.respond(self.command, self.path.partition("?")[0], data)
        status, headers, body = server.first.pop(0) if server.first else answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for part in [body[i : i + 1] for i in range(len(body))] if server.pause else [body]:
            self.wfile.write(part)
            sleep(server.pause)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  the names of methods of HTTP

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time of the hub's clock."""
        del timestamp
        return super().date_time_string(time() + self.server.clock)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Laptop:
    """The unpacked archive of ada in a folder, run by a Python, in another root if there is one."""

    def __init__(self, folder: Path, hub: FakeHub, python: str, root: Path | None = None) -> None:
        self._inside = Path("/", folder.relative_to(root)) if root else folder
        self._start = ("/usr/sbin/chroot", str(root), python) if root else (python,)
        self.archive, self.programs, self.cache = folder / "lab", folder / "bin", folder / "cache"
        for made in (self.archive, self.programs, self.cache):
            made.mkdir()
        (self.archive / "bp").write_bytes(bp_program())
        self.settings = {"fleet": "lab", "person": "ada", "node": "hub.us-west-2.lab.internal", "host": HOST}
        self.settings |= {"address": "127.0.0.1", "version": "0.1.0", "certificate": hub.certificate.read_text()}
        self.set(port=hub.server_address[1])
        (self.programs / "ssh").write_text(_SSH)
        (self.programs / "ssh").chmod(0o755)
        (self.programs / "version").write_text("OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.15\n")
        self.ssh_answers(f"echo {TOKEN}")

    def set(self, **values: object) -> None:
        """Change values of `bp.json`."""
        self.settings |= values  # type: ignore[arg-type]
        (self.archive / "bp.json").write_text(json.dumps(self.settings))

    def ssh_answers(self, script: str) -> None:
        """Let ssh run these shell commands."""
        (self.programs / "answer").write_text(script)

    @property
    def logins(self) -> list[str]:
        """The words of each start of ssh but `ssh -V`."""
        log = self.programs / "ssh.log"
        return [line for line in log.read_text().splitlines() if line != "-V"] if log.exists() else []

    @property
    def token_file(self) -> Path:
        """The file with the token."""
        return self.cache / "bedplate/lab/token"

    def start(self, *words: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:  # noqa: ANN401  as Popen
        """Start a command of bp."""
        command = (*self._start, str(self._inside / "lab/bp"), *words)
        environment = {
            "PATH": f"{self._inside / 'bin'}",
            "LC_ALL": "C.UTF-8",
            "PYTHONWARNINGS": "error::DeprecationWarning",
            "XDG_CACHE_HOME": str(self._inside / "cache"),
            "HOME": str(self._inside),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=stdout, stderr=pipe, text=True, start_new_session=True
        )

    def bp(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of bp with a text as input; it ends without a traceback or a token in its output."""
        process = self.start(*words)
        output, errors = process.communicate(text, timeout=60)
        assert "Traceback" not in errors, errors
        assert TOKEN not in output + errors
        return subprocess.CompletedProcess(words, process.returncode, output, errors)


def oldest_python() -> str:
    """Return Python 3.9 if pyenv has it, the oldest that bp runs on; else the Python of the tests."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return str(next(pyenv.glob("versions/3.9.*/bin/python3"), sys.executable))
