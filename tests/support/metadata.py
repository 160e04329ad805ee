"""A stand-in for a machine's metadata service, version 2: without a token of its own making it answers nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import IP_TTL, IPPROTO_IP, socket
from threading import Thread

_TOKEN = "AQAEAtoken=="  # noqa: S105  # a word of the stand-in's own


class _Handler(BaseHTTPRequestHandler):
    facts: Mapping[str, str] = {}
    hops: int | None = None

    def do_PUT(self) -> None:
        if self.hops:
            self.connection.setsockopt(IPPROTO_IP, IP_TTL, self.hops)
        is_asked = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._answer(200 if is_asked else 400, _TOKEN if is_asked else "")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != _TOKEN:
            self._answer(401, "")
            return
        fact = self.facts.get(self.path.removeprefix("/latest/meta-data/"))
        self._answer(404 if fact is None else 200, fact or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Keep the tests' output clean."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], listener: socket | None = None) -> Iterator[str]:
    """Serve HTTP on a free port of this machine, or where a socket is bound already; give the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=listener is None) as server:
        if listener:
            server.socket.close()
            server.socket, server.server_address = listener, listener.getsockname()
            server.server_activate()
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield "http://{}:{}".format(*server.socket.getsockname())
        server.shutdown()


@contextmanager
def metadata_service(
    facts: Mapping[str, str], listener: socket | None = None, hops: int | None = None
) -> Iterator[str]:
    """Serve the facts of one machine, by their paths below meta-data; what is changed later is told changed.

    `hops` is how many networks a token gets through, as in EC2; there the limit is set on nothing else.
    """
    with serving(type("Handler", (_Handler,), {"facts": facts, "hops": hops}), listener) as url:
        yield url
