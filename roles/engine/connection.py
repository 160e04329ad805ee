"""The operator's end of the connection to a node: starts the agent over SSH, sends it frames, and reports failures.

Contains the error messages of an operation, recognised by the output of apt and dpkg.
"""

import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread, Timer
from typing import IO, TYPE_CHECKING, cast

from bedplate.nodes.apply import NodeError, NodeErrorKind
from bedplate.nodes.bootstrap import OWN_RUN
from bedplate.nodes.remote import KnownError, find_known_error, last_lines, login_error, timeout_error
from bedplate.programs.apply_agent import READY, receive, send
from roles.base import program_texts

if TYPE_CHECKING:
    from io import BufferedReader, BufferedWriter


_LOADER = """import sys, types
for path, text in {texts}.items():
    name = "programs." + path[:-3]
    module = sys.modules[name] = types.ModuleType(name)
    module.__package__ = "programs"
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


def agent_program() -> bytes:
    """Return the agent as a program for a Python without any module of this project."""
    return _LOADER.format(texts=program_texts("apply_agent")).encode()


# Output of apt and dpkg, and of debconf, which pam-auth-update uses and which each package configuration locks.
BUSY = (
    r"Could not get lock|Unable to acquire the dpkg frontend lock|dpkg frontend lock was locked"
    r"|\.dat(-new)? is locked by another process"
)
"""Matches the output of a command that failed because another program holds the package lock: it is retried."""
CONTINUES = "apply again: it continues at this operation"
BY_HAND = f"log in to the node and correct the cause, then {CONTINUES}"
_OPERATION = (
    KnownError(
        r"Release file .* is not valid yet|certificate is not yet valid",
        NodeErrorKind.FAILED,
        "the node's clock is slow",
        "set it on the node (`date`; `chronyc makestep`), then apply again",
    ),
    KnownError(
        "No space left on device|Disk quota exceeded|You don't have enough free space in",
        NodeErrorKind.FAILED,
        "disk full",
        "free disk space or inodes on the node (`df -h`, `df -i`), then apply again",
    ),
    KnownError(
        f"{BUSY}|is locked by another process",
        NodeErrorKind.FAILED,
        "another program held the package lock for too long",
        "find it on the node (`ps -C apt,apt-get,dpkg,dpkg-reconfigure,unattended-upgr`), then apply again",
    ),
    KnownError(
        "Temporary failure resolving|Could not connect to|Failed to fetch|Unable to connect to|Could not resolve '",
        NodeErrorKind.FAILED,
        "cannot reach a package repository",
        "check the node's internet access and apt sources, then apply again",
    ),
    KnownError(
        "No matching distribution found for",
        NodeErrorKind.FAILED,
        "cannot reach a Python package index, or it lacks the package",
        "check the node's internet access and /etc/pip.conf, then apply again",
    ),
    KnownError(
        r"Sub-process /usr/bin/dpkg exited unexpectedly|Sub-process /usr/bin/dpkg received|dpkg was interrupted",
        NodeErrorKind.FAILED,
        "dpkg was interrupted",
        "apply again: the remaining packages are configured first",
    ),
    KnownError(
        "Unable to locate package|has no installation candidate",
        NodeErrorKind.FAILED,
        "package not in the node's repositories",
        "check the node's apt sources, then apply again",
    ),
)


def held_error(node: str, holder: str) -> NodeError:
    """Return the error of a node that somebody else has locked."""
    if holder == OWN_RUN:
        fix = f"`bedplate node logs {node}` shows its progress; apply again when it has ended"
        return NodeError(NodeErrorKind.HELD, "it is configuring itself", fix)
    return NodeError(NodeErrorKind.HELD, f"locked by {holder}", "wait until that apply is done, then apply again")


def operation_error(node: str, operation: str, output: str) -> NodeError:
    """Return why an operation failed, from the output of its command."""
    known_error = find_known_error(node, output, _OPERATION)
    if known_error is None:
        return NodeError(
            NodeErrorKind.FAILED, f"{operation}: {last_lines(output) or 'failed with no error output'}", BY_HAND
        )
    return NodeError(known_error.kind, f"{operation}: {known_error.what}", known_error.fix)


_AGENT = agent_program()
_START = 'import sys;exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),"bedplate","exec"))'
# In English, whatever the locale of the operator's terminal: sudo's errors are recognised by their text.
_AS_ROOT = (
    f"unset LANGUAGE; export LC_ALL=C.UTF-8; p='{_START}'; "
    'if [ $(id -u) = 0 ]; then exec python3 -I -c "$p"; else exec sudo -n -H -- python3 -I -c "$p"; fi'
)
BEAT = 5.0
_LOGIN_SECONDS = 60
_MAX_OUTPUT = 65536
# Seconds beyond a command's own timeout in which the agent must report the timeout.
_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The content of the agent's first frame.

    `lock` is the mode of the node's lock (`alone`, `shared`, `none`), `who` the holder's name, `patience` the seconds
    to wait for the lock, `folder` and `memory` the agent's folders.
    """

    lock: str
    who: str
    patience: float = 90.0
    folder: str = "/run/bedplate"
    memory: str = "/var/lib/bedplate"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command on the node. `late`: it was killed at its timeout."""

    status: int
    out: str
    err: str
    unconfirmed: bool
    late: bool = False


@contextmanager
def _rejects_invalid_answers() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, TypeError):
        raise NodeError(NodeErrorKind.FAILED, "invalid answer from the node's agent", BY_HAND) from None


class Connection:
    """An open connection to a node's agent. Its methods raise NodeError after the connection is lost.

    `argv` runs a shell command on the node, as `ssh NODE` does. The command starts the agent as root.
    """

    def __init__(self, node: str, argv: Sequence[str], options: AgentOptions) -> None:
        self.node = node
        self._writing = Lock()
        self._closed = Event()
        self._timed_out = False
        # A file, not a pipe: a process that ssh leaves behind could keep a pipe open.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        self._process = subprocess.Popen(  # noqa: S603  ssh with our own arguments
            (*argv, f"sh -c {shlex.quote(_AS_ROOT)}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._in = cast("BufferedWriter", self._process.stdin)
        self._out = cast("BufferedReader", self._process.stdout)
        try:
            self.unfinished = self._start_agent(options)
        except BaseException:
            self.close()
            raise
        Thread(target=self._send_heartbeats, daemon=True).start()

    @_rejects_invalid_answers()
    def run(self, command: str, *, stdin: bytes = b"", timeout: float | None = None, note: str = "") -> Result:
        """Run a shell command with `stdin` as its input; the node records `note` in its journal first."""
        request: dict[str, object] = {"do": "run", "command": command, "timeout": timeout, "note": note}
        if timeout is None:
            header, body = self._request(request, stdin)
        else:
            with self._limit(timeout + _GRACE):
                header, body = self._request(request, stdin)
        if "refused" in header:
            return Result(1, "", str(header["refused"]), unconfirmed=False)
        split = int(str(header["split"]))
        out, err = (part.decode(errors="replace") for part in (body[:split], body[split:]))
        return Result(int(str(header["status"])), out, err, bool(header["unconfirmed"]), bool(header["late"]))

    def put(self, path: str, content: bytes, *, note: str = "") -> str:
        """Write a file on the node; return the error message, or "" after success."""
        header, _ = self._request({"do": "put", "path": path, "note": note}, content)
        return str(header.get("refused", ""))

    def get(self, path: str) -> bytes:
        """Return the content of a file on the node. Raises OSError."""
        header, body = self._request({"do": "get", "path": path})
        if "refused" in header:
            raise OSError(str(header["refused"]))
        return body

    def finish(self, done: Sequence[str] | None = None) -> None:
        """Remove operations that are done from the node's journal; None removes all."""
        self._request({"do": "end", "done": None if done is None else list(done)})

    def close(self) -> None:
        """Close the connection; the agent completes the command that it is running."""
        self._closed.set()
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._out, self._errors):
            with suppress(OSError):
                stream.close()

    @_rejects_invalid_answers()
    def _start_agent(self, options: AgentOptions) -> tuple[str, ...]:
        try:
            with self._limit(options.patience + _LOGIN_SECONDS, "the login"):
                self._in.write(f"{len(_AGENT)}\n".encode() + _AGENT)
                send(self._in, {name: getattr(options, name) for name in options.__slots__})
                self._skip_shell_output()
                header, _ = receive(self._out)
        except (EOFError, OSError):
            raise login_error(self.node, self._read_errors()) from None
        if "refused" in header:
            raise operation_error(self.node, "Lock the node", str(header["refused"]))
        if header["held"]:
            raise held_error(self.node, str(header["held"]))
        return tuple(map(str, cast("list[object]", header["unfinished"])))

    @contextmanager
    def _limit(self, seconds: float, request: str = "a query") -> Iterator[None]:
        """Kill the connection if the block takes longer; raises NodeError."""
        timer = Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (EOFError, OSError, NodeError):
            if self._timed_out:
                raise timeout_error(seconds, request) from None
            raise
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _skip_shell_output(self) -> None:
        """Read up to the agent's first line: a login shell may print a greeting before it."""
        output = b""
        while not output.endswith(READY):
            byte = self._out.read(1)
            if not byte or len(output) > _MAX_OUTPUT:
                raise EOFError
            output += byte

    def _read_errors(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._process.kill()
        self._errors.seek(0)
        return self._errors.read(_MAX_OUTPUT).decode(errors="replace")

    def _request(self, header: dict[str, object], body: bytes = b"") -> tuple[dict[str, object], bytes]:
        try:
            with self._writing:
                send(self._in, header, body)
            return receive(self._out)
        except (EOFError, OSError, ValueError):
            what = "connection lost; the node completes the current command and records it"
            raise NodeError(NodeErrorKind.CUT, what, CONTINUES) from None

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(BEAT):
            with suppress(OSError, ValueError), self._writing:
                send(self._in, {"do": "beat"})
