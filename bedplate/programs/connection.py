"""Requests to the hub: one trusted certificate, a token, and repeats while the hub is away. It runs on Python 3.9."""

import http.client
import json
import os
import select
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from threading import Event, Timer
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

CERTIFICATE, CLOCK, AWAY, REFUSED, FILE = "certificate", "clock", "away", "refused", "file"
"""Reasons: another certificate, a wrong clock here, no answer of use, a refusal, and a file of this machine."""
FILES = "/api/2.0/mlflow-artifacts/artifacts"
"""The address of packs, artefacts and logs."""
PATIENCE = 15.0
"""Seconds for which a request is repeated after its first failure, if the caller has no other limit."""
# Seconds: for a connection, without any byte, for a call, and for which nginx keeps an idle connection.
_CONNECT_TIMEOUT, _SILENCE, _LONGEST_CALL, _IDLE = 5.0, 60.0, 130.0, 60.0
_LARGEST, _PART, _LONGEST_PAUSE = 64 << 20, 1 << 16, 10.0
# X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED of OpenSSL.
_CLOCK_ERRORS = frozenset({9, 10})
_SUCCESS, _REPEATED = frozenset({200, 201, 204}), frozenset({0, 408, 429, 500, 502, 503, 504})


class HubError(Exception):
    """A request without success, its reason, and the status of the hub's answer: 0 without one."""

    def __init__(self, what: str, reason: str = AWAY, status: int = 0) -> None:
        super().__init__(what)
        self.reason, self.status = reason, status


class _Request(NamedTuple):
    """A request: `answer` takes the body of its answer, `seconds` limits one try, if they are not 0."""

    method: str
    path: str
    body: IO[bytes]
    answer: IO[bytes]
    seconds: float = 0.0


class Connection:
    """The hub at a URL with this certificate. Methods raise `failure`, a HubError; several threads may use it.

    `token` returns the token, or another one if the hub has refused that. `address` replaces a lookup of the name.
    """

    def __init__(self, url: str, certificate: str, token: Callable[[str], str], address: str = "") -> None:
        parts = urlsplit(url)
        self.host, self._token = parts.hostname or "", token
        self.address, self._port = address or self.host, parts.port or 443
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._busy, self._is_aborted = set[socket.socket](), Event()
        self._ahead = time.time() - time.monotonic()
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._trust.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._trust.load_verify_locations(cadata=certificate)
        except (OSError, ValueError, TypeError):
            raise self.failure("the certificate of the hub is damaged", CERTIFICATE) from None

    def failure(self, what: str, reason: str, status: int = 0) -> HubError:
        """Return the exception of a failure."""
        return HubError(what, reason, status)

    def close(self) -> None:
        """End idle connections."""
        while self._idle:
            self._idle.pop()[1].close()

    def abort(self) -> None:
        """Let all requests fail from now on, also those of other threads."""
        self._is_aborted.set()
        for link in [*self._busy]:
            _shut_down(link)

    @property
    def now(self) -> float:
        """The hub's clock, by its last answer; this machine's before the first."""
        return time.monotonic() + self._ahead

    def call(self, path: str, body: object = None, patience: float = PATIENCE, method: str = "") -> Any:  # noqa: ANN401
        """Return the JSON of an answer; a body is sent as JSON, by POST if no other method is named."""
        default, data = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
        answer, seconds = BytesIO(), min(max(patience, 1), _LONGEST_CALL)
        self._repeat(_Request(method or default, path, BytesIO(data), answer, seconds), patience)
        try:
            return json.loads(answer.getvalue(), parse_constant=str)
        except (ValueError, RecursionError):
            raise self.failure("the hub does not serve requests: its answer is not JSON", AWAY) from None

    def put(self, path: str, data: bytes, patience: float = PATIENCE) -> None:
        """Write a file below `FILES`."""
        self._repeat(_Request("PUT", f"{FILES}/{path}", BytesIO(data), BytesIO()), patience)

    def send(self, path: str, file: Path, patience: float = PATIENCE) -> None:
        """Copy a file of this machine to a file below `FILES`."""
        try:
            with file.open("rb") as body:
                self._repeat(_Request("PUT", f"{FILES}/{path}", body, BytesIO()), patience)
        except OSError as error:
            raise self.failure(f"cannot read {file}: {error.strerror}", FILE) from None

    def get(self, path: str, patience: float = PATIENCE) -> bytes:
        """Return a file below `FILES`."""
        answer = BytesIO()
        self._repeat(_Request("GET", f"{FILES}/{path}", BytesIO(), answer), patience)
        return answer.getvalue()

    def fetch(self, path: str, file: Path, patience: float = PATIENCE) -> None:
        """Copy a file below `FILES` to a file of this machine, which appears when it is complete."""
        part = ""
        try:
            handle, part = tempfile.mkstemp(dir=file.parent, prefix=".part-")
            with os.fdopen(handle, "wb") as answer:
                self._repeat(_Request("GET", f"{FILES}/{path}", BytesIO(), answer), patience)
                answer.flush()
                os.fsync(handle)
            Path(part).replace(file)
        except OSError as error:
            raise self.failure(f"cannot write {file}: {error.strerror}", FILE) from None
        finally:
            with suppress(OSError):
                os.unlink(part)  # noqa: PTH108  an empty name is no path

    def reach(self) -> socket.socket:
        """Return a connection to the hub's machine. Raises OSError."""
        reached = socket.create_connection((self.address, self._port), _CONNECT_TIMEOUT)
        # Head and body are sent apart: the second would wait for an answer to the first.
        reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return reached

    def connect(self, timeout: float = _SILENCE) -> ssl.SSLSocket:
        """Return a connection to the hub with its certificate; OSError if the hub ends it."""
        try:
            secured = self._trust.wrap_socket(self.reach(), server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _CLOCK_ERRORS:
                what = "the hub's certificate is not valid at the time of this machine"
                raise self.failure(what, CLOCK) from None
            raise self.failure(f"another certificate than the hub's answers at {self.address}", CERTIFICATE) from None
        secured.settimeout(timeout)
        return secured

    def _repeat(self, request: _Request, patience: float) -> None:
        """Send a request until it succeeds, while a repeat may help."""
        end, pause, token, is_refused = 0.0, 0.0, self._token(""), False
        while True:
            try:
                status, reason = self._try(request, token)
            except (OSError, http.client.HTTPException) as error:
                status, reason = 0, (str(error) or type(error).__name__)[:200]
            if status in _SUCCESS:
                return
            now = time.monotonic()
            end = end or now + patience
            if status == http.client.UNAUTHORIZED and not is_refused:
                # A new key of the hub ends tokens early.
                token, is_refused = self._token(token), True
            elif status not in _REPEATED:
                raise self.failure(f"the hub refuses: {reason or 'no reason given'} ({status})", REFUSED, status)
            elif now + pause >= end or self._is_aborted.wait(pause):
                raise self.failure(f"the hub does not serve requests: {reason or status}", AWAY, status)
            else:
                request = request._replace(seconds=request.seconds and max(end - now - pause, 1))
                pause = min(max(pause * 2, 0.2), _LONGEST_PAUSE)

    def _try(self, request: _Request, token: str) -> tuple[int, str]:
        """Return the status of an answer, and the reason of a refusal; OSError or HTTPException without an answer."""
        connection = self._take()
        # The limit of a socket is for each read: a slow answer could take any time.
        link = connection.sock
        timer = Timer(request.seconds, _shut_down, (link,))
        self._busy.add(link)
        if request.seconds:
            timer.start()
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            if request.method == "PATCH":
                headers["Content-Type"] = "application/apply-patch+yaml"
            headers["Content-Length"] = str(request.body.seek(0, os.SEEK_END))
            request.body.seek(0)
            # A hub that refuses a body may answer, and read no more of it.
            with suppress(ConnectionError, ssl.SSLEOFError):
                connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            with suppress(TypeError, ValueError):
                self._ahead = parsedate_to_datetime(response.getheader("Date", "")).timestamp() - time.monotonic()
            is_success = response.status in _SUCCESS
            body = request.answer if is_success else BytesIO()
            self._read(response, body)
        except BaseException:
            connection.close()
            raise
        finally:
            timer.cancel()
            self._busy.discard(link)
        if response.will_close:
            connection.close()
        else:
            self._idle.append((time.monotonic(), connection))
        return response.status, "" if is_success else _reason(body)

    def _take(self) -> http.client.HTTPConnection:
        """Return an idle connection that the hub has not ended, or else a new one."""
        with suppress(IndexError):
            while True:
                since, idle = self._idle.pop()
                if time.monotonic() - since < _IDLE and not select.select([idle.sock], [], [], 0)[0]:
                    return idle
                idle.close()
        connection = http.client.HTTPConnection(self.host, blocksize=_PART)
        connection.sock = self.connect()
        return connection

    def _read(self, response: http.client.HTTPResponse, body: IO[bytes]) -> None:
        """Write a body to a file, in parts: Python 3.9 fills the memory for the longest one that is asked for."""
        body.seek(0)
        body.truncate()
        while part := response.read(_PART):
            try:
                body.write(part)
            except OSError as error:
                raise self.failure(f"cannot write a file of the hub: {error.strerror}", FILE) from None
            if isinstance(body, BytesIO) and body.tell() > _LARGEST:
                raise self.failure("the answer of the hub is too large", AWAY)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)


def _reason(body: IO[bytes]) -> str:
    """Return the reason of a refusal; empty without one."""
    body.seek(0)
    try:
        document = json.load(body)
        # Prometheus has another word for it.
        return str(document["message" if "message" in document else "error"])[:500]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _shut_down(connection: socket.socket) -> None:
    # That of SSLSocket would take the TLS session from the thread that reads.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
