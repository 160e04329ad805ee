"""A proxy on this laptop that shows pages to one browser: those of the hub with the person's token, or of a session."""

import hmac
import re
import secrets
import select
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from .hub import BpError, Hub, say, write

# What MLflow's pages ask for. The hub's own requests, such as those for tokens, are for no page.
_PATHS = re.compile(r"/(?:|static-files/.*|ajax-api/.*|get-artifact|graphql|version)")
GRAFANA = "/grafana/"
"""Where the pages of Grafana begin: a proxy shows these, or those of MLflow."""
_METHODS = {"GET", "HEAD", "POST"}
_LOGIN, _COOKIE, _PART = "/login/", "bp-", 1 << 16
# Seconds: the hub gives up after 120.
_TIMEOUT = 130.0
# What bp sets itself, or is for one connection only; and what the hub gets of bp alone.
_DROPPED = frozenset(("host", "cookie", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"))
_NOT_FOR_HUB = frozenset(("authorization", "origin", "referer"))
# From a page of this address on, browsers send a cookie that is for this address only.
_LOGGED_IN = '<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={}">'


class Proxy(ThreadingTCPServer):
    """The proxy on a free port. `address` has a secret that one browser can use once, and leads to a path.

    `page` opens a connection to the page of a session; without it, the pages are those of the hub.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: Hub, path: str = "/", page: "Callable[[], socket.socket] | None" = None) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        port, secret = self.server_address[1], secrets.token_urlsafe(32)
        self.hub, self.host, self.secrets, self.path = hub, f"127.0.0.1:{port}", [secret], path
        self.page, self.paths = page, re.compile(f"{GRAFANA}.*") if path.startswith(GRAFANA) else _PATHS
        # By port: browsers send the cookies of all ports.
        self.cookie = f"{_COOKIE}{port}={secrets.token_urlsafe(32)}"
        self.address = f"http://{self.host}{_LOGIN}{secret}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Report no connection that a browser ends."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Requests(BaseHTTPRequestHandler):
    """One request a connection, whose bytes are passed on as they come."""

    server: Proxy
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Pass the request of the one browser to the hub; refuse all others."""
        path, headers, own = self.path.partition("?")[0], self.headers, f"http://{self.server.host}"
        if headers.get_all("Host") != [self.server.host]:
            self._respond(421, f"the name of this host is {self.server.host}")
        elif self.command == "GET" and path.startswith(_LOGIN):
            self._log_in(path[len(_LOGIN) :])
        elif not any(_is_equal(cookie, self.server.cookie) for cookie in self._cookies()):
            self._respond(403, "only the address that bp prints in your own terminal leads here: run its command again")
        elif headers.get("Origin", own) != own or headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            self._respond(403, "the request comes from a page of another address")
        elif not self.server.page and self.command not in _METHODS:
            self._respond(501, "no page of the hub needs this method")
        elif not self.server.page and not self.server.paths.fullmatch(path):
            self._respond(404, "this is no page of what bp ui shows here")
        else:
            self._pass_on()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  the names of methods of HTTP

    def _cookies(self) -> Sequence[str]:
        return [cookie.strip() for cookie in self.headers.get("Cookie", "").split(";")]

    def _log_in(self, text: str) -> None:
        with suppress(IndexError):
            # pop() gives the secret to one of two requests at the same time.
            if _is_equal(text, self.server.secrets[0]) and self.server.secrets.pop():
                page, cookie = _LOGGED_IN.format(escape(self.server.path)), self.server.cookie
                self._respond(200, page, f"{cookie}; HttpOnly; SameSite=Strict; Path=/")
                return
        self._respond(403, "this address was used, or is not complete: run the command of bp that printed it again")

    def _respond(self, status: int, text: str, cookie: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if cookie else "text/plain")
        self.send_header("Cache-Control", "no-store")
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(f"{text}\n".encode())

    def _pass_on(self) -> None:
        length, lines = self.headers.get("Content-Length", "0"), self.headers.items()
        if not length.isdecimal() or "Transfer-Encoding" in self.headers or any({"\r", "\n"} & {*v} for _, v in lines):
            self._respond(400, "bp ui needs the length of a body, and headers of one line")
            return
        try:
            token = "" if self.server.page else self.server.hub.token()
            hub = self._send(int(length), token)
            answer = hub.recv(_PART)
            # A new key of the hub ends tokens early. A body cannot be sent again, but the next request succeeds.
            if token and answer.startswith(b"HTTP/1.1 401"):
                token = self.server.hub.token(refused=token)
                if length == "0":
                    hub.close()
                    hub = self._send(0, token)
                    answer = hub.recv(_PART)
        except (BpError, OSError) as error:
            self._respond(502, f"{error}\n{getattr(error, 'fix', 'try again')}")
            return
        with hub:
            if not answer:
                self._respond(502, "the connection was lost: try again")
            self._copy(answer, hub)

    def _head(self, token: str) -> Iterator[str]:
        """Yield the lines before those of the browser."""
        yield f"{self.command} {self.path} HTTP/1.1"
        if token:
            yield from (f"Host: {self.server.hub.settings.host}", f"Authorization: Bearer {token}")
        else:
            # Browsers send the cookies of all ports, also those of other proxies of bp.
            own = [cookie for cookie in self._cookies() if not cookie.startswith(_COOKIE)]
            yield from (f"Host: {self.server.host}", f"Cookie: {'; '.join(own)}")
        upgrade = self.headers.get("Upgrade", "")
        yield from (f"Connection: Upgrade\r\nUpgrade: {upgrade}",) if upgrade else ("Connection: close",)

    def _send(self, length: int, token: str) -> socket.socket:
        """Return a connection to the server of the page that has sent the request with its body."""
        dropped = _DROPPED | _NOT_FOR_HUB if token else _DROPPED
        own = (f"{name}: {value}" for name, value in self.headers.items() if name.lower() not in dropped)
        lines = [*self._head(token), *own]
        connection = self.server.page() if self.server.page else self.server.hub.connect()
        connection.settimeout(_TIMEOUT)
        try:
            connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1"))
            while length and (part := self.rfile.read1(min(length, _PART))):
                connection.sendall(part)
                length -= len(part)
        except BaseException:
            connection.close()
            raise
        return connection

    def _copy(self, part: bytes, hub: socket.socket) -> None:
        """Copy an answer as it comes, and after the start of a WebSocket what both sides send."""
        is_open = part.startswith(b"HTTP/1.1 101")
        while part:
            self.wfile.write(part)
            part = self._exchange(hub) if is_open else hub.recv(_PART)

    def _exchange(self, hub: socket.socket) -> bytes:
        """Send what the browser sends until the hub sends something. One thread: only Python 3.13 locks connections."""
        has_more = hub.pending if isinstance(hub, ssl.SSLSocket) else int
        while True:
            if not has_more() and self.connection in select.select([self.connection, hub], [], [])[0]:
                part = self.connection.recv(_PART)
                if not part:
                    return b""
                hub.sendall(part)
                continue
            hub.settimeout(0)
            try:
                return hub.recv(_PART)
            except ssl.SSLWantReadError:  # half a record
                continue
            finally:
                hub.settimeout(_TIMEOUT)

    def log_message(self, *_: object) -> None:
        """Print nothing: addresses have secrets."""


def serve(hub: Hub, path: str = "/", page: "Callable[[], socket.socket] | None" = None) -> None:
    """Show pages from a path on until Ctrl-C."""
    with Proxy(hub, path, page) as proxy, suppress(KeyboardInterrupt):
        write(f"{proxy.address}\n".encode())
        say("Open this address in your browser, once. Ctrl-C ends the proxy.")
        proxy.serve_forever()


def _is_equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())
