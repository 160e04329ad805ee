"""The agent as a node gets it: one program of all its modules, each of which runs there under its own name."""

import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from threading import Event, Lock, Thread, Timer
from typing import IO, TYPE_CHECKING, cast

from bedplate.nodes.apply import Kind, Trouble
from roles.engine.agent import READY, receive, send

if TYPE_CHECKING:
    from io import BufferedReader, BufferedWriter


def agent_program() -> bytes:
    """Return the agent as one program, for a Python that has no module of this project."""
    return (files("roles.engine") / "agent.py").read_bytes() + b"\n\nmain()\n"


# apt's and dpkg's words, and debconf's, which pam-auth-update asks and which every package that is configured holds.
BUSY = (
    r"Could not get lock|Unable to acquire the dpkg frontend lock|dpkg frontend lock was locked"
    r"|\.dat(-new)? is locked by another process"
)
"""By which an operation is known that another program keeps from its packages: it is tried again for a while."""
BY_HAND = "log in there and mend what it says, then apply again: it goes on where it stopped"
_SHOWN_LINES, _SHOWN_WIDTH = 3, 200


@dataclass(frozen=True, slots=True)
class _Saying:
    pattern: str
    kind: Kind
    what: str
    fix: str


_LOGIN = (
    _Saying(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        Kind.REFUSED,
        "its host key is not the recorded one: it is another machine, or was made anew, or somebody is in between",
        "compare with the machine's console; where it was made anew: `bedplate node trust {node} SHA256:... --replace`;"
        " a group's machine that people log in to: `bedplate node trust {node}`",
    ),
    _Saying(
        r"No .* host key is known|Host key verification failed",
        Kind.REFUSED,
        "its host key is not known",
        "read the fingerprint at its console, then `bedplate node trust {node} SHA256:...`",
    ),
    _Saying(
        "Too many authentication failures",
        Kind.UNREACHED,
        "it takes three keys a login, and the agent offered as many others first",
        "name the key by --identity FILE, and have ssh offer no other: `IdentitiesOnly yes` in ~/.ssh/config",
    ),
    _Saying(
        r"Permission denied \(",
        Kind.UNREACHED,
        "it does not let this account in",
        "name another by --user, or a key by --identity; "
        "a fresh machine of the cloud knows administrators alone, one of a site `ubuntu`",
    ),
    _Saying(
        "Could not resolve hostname",
        Kind.UNREACHED,
        "its name does not resolve here",
        "open the VPN; `bedplate node list --live` tells which machines are there",
    ),
    _Saying(
        r"Connection (timed out|refused|reset)|No route to host|Network is unreachable|Operation timed out",
        Kind.UNREACHED,
        "it does not answer",
        "is it on, and is the VPN open? `bedplate reach` tells the path",
    ),
    _Saying(
        r"a (terminal|password) is required|no password was provided",
        Kind.UNREACHED,
        "sudo asks for a password",
        "let the account become root without one: `bedplate node bootstrap {node}` shows how",
    ),
    _Saying(
        "is not in the sudoers file|is not allowed to execute|may not run sudo",
        Kind.UNREACHED,
        "this account may not become root",
        "apply as an administrator, or name the first account by --user",
    ),
    _Saying("sudo: (command )?not found|sudo: No such file", Kind.UNREACHED, "it has no sudo", "install sudo there"),
    _Saying(r"python3: (command )?not found", Kind.UNREACHED, "it has no Python", "install python3 there"),
)
_WORK = (
    _Saying(
        r"Release file .* is not valid yet|certificate is not yet valid",
        Kind.FAILED,
        "its clock is behind",
        "set it (`date`; `chronyc makestep`), then apply again",
    ),
    _Saying(
        "No space left on device|Disk quota exceeded|You don't have enough free space in",
        Kind.FAILED,
        "its disk is full",
        "make room on it (`df -h` and `df -i` tell where), then apply again",
    ),
    _Saying(
        f"{BUSY}|is locked by another process",
        Kind.FAILED,
        "another program installs packages there, and did not end in time",
        "look who: `ps -C apt,apt-get,dpkg,dpkg-reconfigure,unattended-upgr`; then apply again",
    ),
    _Saying(
        "Temporary failure resolving|Could not connect to|Failed to fetch|Unable to connect to|Could not resolve '",
        Kind.FAILED,
        "it cannot reach a package archive",
        "look at its way out and at its apt sources, then apply again",
    ),
    _Saying(
        "No matching distribution found for",
        Kind.FAILED,
        "it cannot reach an index of Python's packages, or that one has not what is wanted",
        "look at its way out and at /etc/pip.conf, then apply again",
    ),
    _Saying(
        r"Sub-process /usr/bin/dpkg exited unexpectedly|Sub-process /usr/bin/dpkg received|dpkg was interrupted",
        Kind.FAILED,
        "the package manager ended in the middle of its work",
        "apply again: what is left is configured first",
    ),
    _Saying(
        "Unable to locate package|has no installation candidate",
        Kind.FAILED,
        "its package archives do not have what is wanted",
        "look at its apt sources, then apply again",
    ),
)


def login_trouble(node: str, said: str) -> Trouble:
    """Return why there is no way into a node, from what ssh and the far end said."""
    return _recognised(node, said, _LOGIN) or Trouble(
        Kind.UNREACHED, f"it cannot be logged in to: {_end(said) or 'nobody said why'}", "try it by hand: `ssh -v`"
    )


def silence(seconds: float) -> Trouble:
    """Return how a node is told that was asked something and did not answer for so many seconds."""
    what = f"it does not answer: it was asked something, and said nothing for {seconds:.0f} s"
    fix = "look what hangs there, by hand (`ps -ef`; often a disk, or a file server that is gone), then apply again"
    return Trouble(Kind.UNREACHED, what, fix)


def work_trouble(node: str, operation: str, said: str) -> Trouble:
    """Return why an operation failed on a node, from what its command said."""
    known = _recognised(node, said, _WORK)
    if known is None:
        return Trouble(Kind.FAILED, f"{operation}: {_end(said) or 'it failed without a word'}", BY_HAND)
    return Trouble(known.kind, f"{operation}: {known.what}", known.fix)


def _recognised(node: str, said: str, sayings: tuple[_Saying, ...]) -> Trouble | None:
    for each in sayings:
        if re.search(each.pattern, said):
            return Trouble(each.kind, each.what, each.fix.format(node=node))
    return None


def _end(said: str) -> str:
    # A node's own words steer nobody's terminal.
    plain = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in said)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return " / ".join(lines[-_SHOWN_LINES:])[-_SHOWN_WIDTH:]


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
