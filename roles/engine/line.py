"""A line to a node: an ssh process, with our agent at its far end as root. One question at a time, one answer each."""

import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread, Timer
from typing import IO, TYPE_CHECKING, cast

from bedplate.nodes.event import Kind, Trouble
from roles.engine.agent.frame import READY, receive, send
from roles.engine.sent import agent_program
from roles.engine.trouble import login_trouble, silence, work_trouble

if TYPE_CHECKING:
    from io import BufferedReader, BufferedWriter

_AGENT = agent_program()
_START = 'import sys;exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),"bedplate","exec"))'
# In plain English, whatever language an operator's terminal brings along: what sudo refuses is known by its words.
_AS_ROOT = (
    f"unset LANGUAGE; export LC_ALL=C.UTF-8; p='{_START}'; "
    'if [ $(id -u) = 0 ]; then exec python3 -I -c "$p"; else exec sudo -n -H -- python3 -I -c "$p"; fi'
)
BEAT = 5.0
_LOGIN_SECONDS = 60
_NOISE = 65536
# Seconds beyond a command's own time in which its agent is to say that the time is over.
_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class Opening:
    """What a line wants of its agent: the node's lock (`alone`, `shared`, `none`), for whom, where it keeps things."""

    lock: str
    who: str
    patience: float = 90.0
    folder: str = "/run/bedplate"
    memory: str = "/var/lib/bedplate"


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended on the node."""

    status: int
    out: str
    err: str
    unconfirmed: bool
    late: bool = False
    """Whether it was ended because its time was over."""


class Line:
    """An open line; raises Trouble once the other end is gone.

    `argv` runs what it is given on the node: there it is the node's Python, as root, which reads the agent.
    """

    def __init__(self, node: str, argv: Sequence[str], opening: Opening) -> None:
        self.node = node
        self._writing = Lock()
        self._closed = Event()
        self._given_up = False
        # A file, not a pipe: whatever ssh leaves behind may hold a pipe open for ever.
        self._told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed when we hang up
        self._process = subprocess.Popen(  # noqa: S603  ssh, with the arguments that we made
            (*argv, f"sh -c {shlex.quote(_AS_ROOT)}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
        )
        self._in = cast("BufferedWriter", self._process.stdin)
        self._out = cast("BufferedReader", self._process.stdout)
        try:
            self.unfinished = self._greeted(opening)
        except BaseException:
            self.close()
            raise
        Thread(target=self._keep_beating, daemon=True).start()

    def run(self, command: str, *, given: bytes = b"", timeout: float | None = None, note: str = "") -> Result:
        """Run a line of the shell; `note` is remembered on the node before it runs."""
        asked: dict[str, object] = {"do": "run", "command": command, "timeout": timeout, "note": note}
        if timeout is None:
            header, body = self._ask(asked, given)
        else:
            with self._within(timeout + _GRACE):
                header, body = self._ask(asked, given)
        if "refused" in header:
            return Result(1, "", str(header["refused"]), unconfirmed=False)
        split = int(str(header["split"]))
        out, err = (part.decode(errors="replace") for part in (body[:split], body[split:]))
        return Result(int(str(header["status"])), out, err, bool(header["unconfirmed"]), bool(header["late"]))

    def put(self, path: str, content: bytes, *, note: str = "") -> str:
        """Write a file on the node; return why it could not, or nothing."""
        header, _ = self._ask({"do": "put", "path": path, "note": note}, content)
        return str(header.get("refused", ""))

    def get(self, path: str) -> bytes:
        """Return a file of the node; OSError where there is none."""
        header, body = self._ask({"do": "get", "path": path})
        if "refused" in header:
            raise OSError(header["refused"])
        return body

    def finish(self, done: Sequence[str] | None = None) -> None:
        """Tell the node which operations are done, of those that were begun; None for all."""
        self._ask({"do": "end", "done": None if done is None else list(done)})

    def close(self) -> None:
        """Hang up; the far end finishes the command that it is running."""
        self._closed.set()
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._out, self._told):
            with suppress(OSError):
                stream.close()

    def _greeted(self, opening: Opening) -> tuple[str, ...]:
        try:
            with self._within(opening.patience + _LOGIN_SECONDS):
                self._in.write(f"{len(_AGENT)}\n".encode() + _AGENT)
                send(self._in, {name: getattr(opening, name) for name in opening.__slots__})
                self._skip_noise()
                header, _ = receive(self._out)
        except (EOFError, OSError):
            raise login_trouble(self.node, self._said()) from None
        if "refused" in header:
            raise work_trouble(self.node, "taking its lock", str(header["refused"]))
        if header["held"]:
            what = f"it is being worked on by {header['held']}"
            raise Trouble(Kind.HELD, what, "wait until that has ended, then run yours again")
        return tuple(cast("list[str]", header["unfinished"]))

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Cut the line where what is within takes longer; raises Trouble for it."""
        watch = Timer(seconds, self._give_up)
        watch.daemon = True
        watch.start()
        try:
            yield
        except (EOFError, OSError, Trouble):
            if self._given_up:
                raise silence(seconds) from None
            raise
        finally:
            watch.cancel()

    def _give_up(self) -> None:
        self._given_up = True
        self._process.kill()

    def _skip_noise(self) -> None:
        """Read up to the agent's first line: a shell may greet whoever logs in."""
        found = b""
        while not found.endswith(READY):
            byte = self._out.read(1)
            if not byte or len(found) > _NOISE:
                raise EOFError
            found += byte

    def _said(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._process.kill()
        self._told.seek(0)
        return self._told.read(_NOISE).decode(errors="replace")

    def _ask(self, header: dict[str, object], body: bytes = b"") -> tuple[dict[str, object], bytes]:
        try:
            with self._writing:
                send(self._in, header, body)
            return receive(self._out)
        except (EOFError, OSError, ValueError):
            what = "the connection was cut; what it was doing is finished there, and remembered"
            raise Trouble(Kind.CUT, what, "apply again: it goes on where it stopped") from None

    def _keep_beating(self) -> None:
        while not self._closed.wait(BEAT):
            with suppress(OSError, ValueError), self._writing:
                send(self._in, {"do": "beat"})
