"""A stand-in for a machine's metadata service, version 2: without a token of its own making it answers nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_TOKEN = "AQAEAtoken=="  # noqa: S105  # a word of the stand-in's own


class _Handler(BaseHTTPRequestHandler):
    facts: Mapping[str, str] = {}

    def do_PUT(self) -> None:
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
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port of this machine; give the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def metadata_service(facts: Mapping[str, str]) -> Iterator[str]:
    """Serve the facts of one machine, by their paths below meta-data; what is changed later is told changed."""
    with serving(type("Handler", (_Handler,), {"facts": facts})) as url:
        yield url
