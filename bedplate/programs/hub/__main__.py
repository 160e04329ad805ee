"""The command `bedplate-hub`: it checks requests for nginx, and makes tokens for the accounts of this machine."""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl

from .alerts import serve_alerts
from .limits import IDLE, SPENT, STOPS, stop_cause
from .limits import main as apply_limits
from .messages import main as send_messages
from .records import Lines
from .rules import LARGEST, check_request, check_write, file_of
from .sweep import SOCKET, Record
from .sweep import main as sweep
from .tokens import HOUR, LONGEST, SCOPE, RefusedError, Token, read_token, sign

VOLUME, PEOPLE = Path("/srv/hub"), Path("/etc/bedplate/hub-people")
_REMOVED, _ENDED = "tokens/removed", "tokens/ended"
# Seconds for an answer of MLflow.
_RECORD_TIMEOUT = 10
_SHORTEST_KEY, _LARGEST_BODY = 32, 4_096
_FIRST_DESCRIPTOR = 3  # sd_listen_fds(3)


class Hub:
    """The keys and files of the hub, and MLflow's socket; tests use other folders."""

    def __init__(
        self, keys: Sequence[bytes], volume: Path = VOLUME, people: Path = PEOPLE, record: str = SOCKET
    ) -> None:
        self._keys, self._volume, self._record = keys, volume, Record(record, _RECORD_TIMEOUT)
        self._people, self._removed = Lines(people), Lines(volume / _REMOVED)
        self._runs, self._ended = Lines(volume / "tokens/runs"), Lines(volume / _ENDED)
        self._stops, self._idle, self._spent = (Lines(volume / name) for name in (STOPS, IDLE, SPENT))
        self._usage: Mapping[str, Any] = {"time": 0}
        self._counting = Lock()

    def person(self, uid: int) -> str:
        """Return the name of a person. Raises RefusedError for others, and for those who were removed."""
        name = self._people.read().get(str(uid))
        if name is None or str(uid) in self._removed.read():
            raise RefusedError(403, "no person of the fleet")
        return name

    def check(self, authorization: str, method: str, target: str, length: str) -> tuple[Token, str]:
        """Return the token of a request that it allows, and the name of its person. Raises RefusedError."""
        # One form: nginx counts requests by this header.
        kind, _, text = authorization.partition(" ")
        token = read_token(text if kind == "Bearer" else "", self._keys, time.time())
        if token.owned_scope in self._ended.read():
            raise RefusedError(401, "the token has ended")
        person = self.person(token.uid)
        check_request(token, person, method, target)
        if method == "PUT":
            exists = (self._volume / "artifacts" / file_of(target)).exists()
            check_write(file_of(target), length, self._in_use(int(length or LARGEST)), exists=exists)
        return token, person

    def mint(self, uid: int, scope: str, study: str = "") -> str:
        """Return a token of a person, who asks by a study if it has a name. Raises RefusedError."""
        person, token = self.person(uid), Token(uid, int(time.time()) + (HOUR if scope == "person" else LONGEST), scope)
        if not SCOPE.fullmatch(scope):
            raise RefusedError(400, "a scope is person, run:ID with MLflow's id of the run, or study:NAME")
        if token.kind == "study" and not token.name.startswith(f"{person}-"):
            raise RefusedError(403, f"your studies have names that start with {person}-")
        if token.owned_scope in self._ended.read():
            raise RefusedError(409, "the run or study has ended")
        if study and not (token.kind == "run" and self._id_of(token.name).startswith(f"{study}-")):
            raise RefusedError(403, f"this study has runs whose id starts with {study}-")
        if token.kind == "run" and _claim(self._runs, token.name, str(uid)) != str(uid):
            raise RefusedError(403, "another person owns this run")
        return sign(token, self._keys[0])

    def end(self, token: Token) -> None:
        """Refuse the token of a run or study from now on. Raises RefusedError."""
        _claim(self._ended, token.owned_scope)

    def stop_cause(self, run: str, query: str) -> str:
        """Return why a run must end, whose agent says in a query for how many seconds it is idle; else nothing."""
        idle = dict(parse_qsl(query)).get("idle", "")
        return stop_cause(self._stops.read(), self._idle.read(), run, int(idle) if idle.isdecimal() else 0)

    def budget(self, person: str) -> Mapping[str, Any]:
        """Return budget and costs of a person in a month, and how many runs have no known price; empty without one."""
        words = self._spent.read().get(person, "").split()
        return dict(zip(("spent", "unknown", "budget", "month"), [*map(float, words[:3]), *words[3:]], strict=False))

    def _id_of(self, run: str) -> str:
        """Return the tag `bedplate.id` of a run. Raises RefusedError if MLflow does not answer, or has no such run."""
        try:
            return self._record.tags(run).get("id", "")
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            raise RefusedError(503, "the record does not answer, or has no such run") from None

    def _in_use(self, more: int = 0) -> float:
        """Return the share of the disk, or of its files, that is in use with so many bytes more, as df(1) does."""
        disk = os.statvfs(self._volume)
        used, files = disk.f_blocks - disk.f_bfree, disk.f_files - disk.f_ffree
        return max((used + more / disk.f_frsize) / (used + disk.f_bavail), files / max(files + disk.f_favail, 1))

    def usage(self) -> Mapping[str, Any]:
        """Return the bytes of each person's packs and artefacts, at most an hour old; "" has those of nobody."""
        with self._counting:
            if self._usage["time"] <= time.time() - HOUR:
                runs, people, sizes = self._runs.read(), self._people.read(), dict[str, int]()
                for folder in (self._volume / "artifacts").glob("*/*"):
                    owner = folder.name if folder.parent.name == "packs" else people.get(runs.get(folder.name, ""), "")
                    sizes[owner] = sizes.get(owner, 0) + sum(path.lstat().st_size for path in folder.rglob("*"))
                self._usage = {"time": int(time.time()), "disk": self._in_use(), "people": sizes}
            return self._usage


def _claim(lines: Lines, word: str, value: str = "") -> str:
    try:
        return lines.claim(word, value)
    except OSError as error:
        sys.stderr.write(f"cannot write {lines.path}: {error.strerror}\n")
        raise RefusedError(507, "the hub cannot write to its disk: ask an administrator") from None


class Server(ThreadingUnixStreamServer):
    """A server on a socket that systemd has opened."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[StreamRequestHandler], hub: Hub) -> None:
        super().__init__("", handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.hub = listener, hub


class Requests(BaseHTTPRequestHandler):
    """Requests of nginx: `/check` about another request, and those of clients to `/bedplate/`.

    A failure is a traceback in the journal; nginx refuses what was not checked.
    """

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer with JSON. nginx understands some statuses of `/check` only, and has the others from headers."""
        try:
            status, facts = self._respond(self.server.hub)
        except RefusedError as error:
            status, facts = error.status, {"error_code": str(error.status), "message": str(error)}
        is_check = self.path == "/check"
        self.send_response(status if not is_check or status in {200, 401} else 403)
        text = json.dumps(facts)
        # nginx reads no body of this answer.
        body = b"" if is_check else text.encode()
        if is_check and "message" in facts:
            self.send_header("X-Status", str(status))
            self.send_header("X-Refusal", text)
        for name in {"name", "scope"} & facts.keys():
            self.send_header(f"X-{name}", facts[name])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  the name of a method of HTTP

    def _respond(self, hub: Hub) -> tuple[int, Mapping[str, Any]]:
        asks = self.path == "/check"
        names = ("Authorization", "X-Method", "X-Target", "X-Length")
        authorization, *request = (self.headers.get(name, "") for name in names)
        method, target, length = request if asks else (self.command, self.path, "")
        token, person = hub.check(authorization, method, target, length)
        if asks:
            return 200, {"name": person, "scope": token.scope}
        if self.path == "/bedplate/token":
            return 200, {"token": hub.mint(token.uid, self._scope(), study=token.name)}
        if self.path == "/bedplate/end":
            hub.end(token)
            return 200, {}
        if self.path == "/bedplate/budget":
            return 200, hub.budget(person)
        if self.path.startswith("/bedplate/stop"):
            cause = hub.stop_cause(token.name, self.path.partition("?")[2])
            return 200, {"cause": cause} if cause else {}
        if self.path == "/bedplate/usage":
            return 200, hub.usage()
        return 200, {**vars(token), "name": person, "now": time.time()}

    def _scope(self) -> str:
        try:
            length = min(int(self.headers["Content-Length"]), _LARGEST_BODY)
            return str(json.loads(self.rfile.read(length))["scope"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise RefusedError(400, 'the body must be {"scope": "run:ID"}') from None

    def log_message(self, *_: object) -> None:
        """Log nothing: nginx logs each request."""


class Mint(StreamRequestHandler):
    """A scope from an account of this machine (`usage` from root), answered by a token, or `error: ` and the reason."""

    server: Server
    timeout = 10

    def handle(self) -> None:
        """Answer one caller; the kernel says who it is: unix(7), SO_PEERCRED."""
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        hub, scope = self.server.hub, self.rfile.readline(_LARGEST_BODY).decode(errors="replace").strip()
        try:
            if (uid, scope) == (0, "usage"):
                sizes = {"": 0, **hub.usage()["people"]}
                answer = "\n".join(f"bytes.{person or '-'} {size}" for person, size in sizes.items())
            else:
                answer = hub.mint(uid, scope)
        except RefusedError as error:
            answer = f"error: {error}"
        self.wfile.write(answer.encode())


def serve(hub: Hub, listeners: Sequence[socket.socket]) -> None:
    """Answer nginx on the first socket, and accounts of this machine on the second."""
    check, mint = Server(listeners[0], Requests, hub), Server(listeners[1], Mint, hub)
    Thread(target=mint.serve_forever, daemon=True).start()
    check.serve_forever()


def main(words: Sequence[str]) -> None:
    """Serve; or do what the first word says.

    `remove UID` refuses a person's tokens, `end SCOPE` those of a run, and `stop RUN CAUSE` lets agents stop a run, by
    its id in MLflow. `sweep` ends lost runs, and those beyond a limit; `alerts` sends alerts to people.
    """
    files = {"remove": _REMOVED, "end": _ENDED, "stop": STOPS}
    if words and words[0] in files:
        Lines(VOLUME / files[words[0]]).claim(words[1], " ".join(words[2:]))
        return
    if "CREDENTIALS_DIRECTORY" not in os.environ:
        sys.exit("error: its keys are missing: start bedplate-hub.service, or the unit of this word")
    if words[:1] == ["alerts"]:
        serve_alerts(VOLUME / "tokens/alerts", socket.socket(fileno=_FIRST_DESCRIPTOR))
        return
    if words[:1] == ["sweep"]:
        send_messages(VOLUME, PEOPLE, apply_limits(VOLUME, PEOPLE, sweep(VOLUME, PEOPLE)))
        return
    folder = Path(os.environ["CREDENTIALS_DIRECTORY"])
    keys = [key for name in ("tokens", "tokens.former") if (key := (folder / name).read_bytes().strip())]
    if not keys or min(map(len, keys)) < _SHORTEST_KEY:
        sys.exit("the key of tokens is missing or too short")
    serve(Hub(keys), [socket.socket(fileno=_FIRST_DESCRIPTOR + number) for number in range(2)])


if __name__ == "__main__":
    main(sys.argv[1:])
