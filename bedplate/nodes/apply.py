"""An apply in a subprocess: its request on stdin, its events as JSON lines on stdout, and the result of each node.

The request is sent on stdin so that process lists do not show it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import IO, BinaryIO, cast

from pydantic import TypeAdapter

from bedplate.errors import BedplateError, HeldError, PartialError, ViolationError
from bedplate.foreign import LARGE, parse_json
from bedplate.plan.nodes import NodePlan


@dataclass(frozen=True, slots=True)
class Target:
    """A node of an apply: its plan, and the command prefix that runs a program on it, such as `ssh -F FILE NAME`.

    `confirm` is the prefix that confirms a change of the way to log in; without it, a new login by `argv` confirms.
    """

    node: NodePlan
    argv: tuple[str, ...]
    confirm: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """An apply, or with `check` a dry run; `only` limits it to these roles, `stages` to these stages."""

    targets: tuple[Target, ...]
    holder: str
    check: bool = False
    only: frozenset[str] | None = None
    folder: str = "/run/bedplate"
    memory: str = "/var/lib/bedplate"
    stages: frozenset[str] | None = None


_REQUEST = TypeAdapter(ApplyRequest)


def write_request(stream: BinaryIO, request: ApplyRequest) -> None:
    """Write a request to a stream, as one line of JSON."""
    # pydantic warns about read-only views, which it writes with `fallback`.
    stream.write(_REQUEST.dump_json(request, fallback=dict, warnings=False) + b"\n")
    stream.flush()


def read_request(stream: BinaryIO) -> ApplyRequest:
    """Read the request of the parent process."""
    return _REQUEST.validate_json(stream.readline())


class Step(StrEnum):
    """The type of an event on a node."""

    OPENED = "opened"
    NOTE = "note"
    BEGINS = "begins"
    OPERATION = "operation"
    DONE = "done"
    ERROR = "error"
    REBOOT = "reboot"


class NodeErrorKind(StrEnum):
    """The reason why an apply on a node ended early."""

    UNREACHED = "not reached"
    REFUSED = "refused"
    HELD = "held"
    FAILED = "failed"
    CUT = "cut off"
    STOPPED = "stopped"
    DEFECT = "defect"


class NodeError(PartialError):
    """The error that ended an apply or a command on a node early; `detail` is the last line of ssh or sudo."""

    def __init__(self, kind: NodeErrorKind, what: str, fix: str = "", detail: str = "") -> None:
        super().__init__(what, fix=fix)
        self.kind = kind
        self.detail = detail

    @property
    def words(self) -> str:
        """What happened, with the detail."""
        return self.what if self.detail in self.what else f"{self.what} ({self.detail})"


@dataclass(frozen=True, slots=True)
class Event:
    """One event on a node; fields that do not apply to the step are empty."""

    node: str
    step: Step
    name: str = ""
    """The operation, or the rule."""
    words: str = ""
    fix: str = ""
    kind: NodeErrorKind | None = None
    changed: int = 0
    """The number of operations with a change, or of violated rules."""
    unchanged: int = 0
    """The number of other completed operations or rules."""
    seconds: float = 0.0
    ahead: int = 0
    """The number of rules that are still to be checked."""

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps(asdict(self))


def parse_event(line: str | bytes) -> Event:
    """Return the event in a line of JSON; ValueError for a malformed line."""
    fields = parse_json(line, LARGE)
    kind = NodeErrorKind(fields["kind"]) if fields["kind"] else None
    return Event(**{**fields, "step": Step(fields["step"]), "kind": kind})


def error_event(node: str, error: NodeError) -> Event:
    """Return the event of an error on a node."""
    return Event(node, Step.ERROR, words=error.what, fix=error.fix, kind=error.kind)


_PROGRAM = "roles.run"


class ApplyProcess:
    """A running apply."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
        self._process = process
        self._stderr = stderr

    def events(self) -> Iterator[Event]:
        """Yield the events until the process ends; BedplateError if it fails."""
        for line in cast("BinaryIO", self._process.stdout):
            try:
                event = parse_event(line)
            except (ValueError, TypeError, KeyError):
                raise BedplateError("the apply process wrote an invalid event") from None
            yield event
        if self._process.wait() != 0:
            message = f"the apply process failed with exit status {self._process.returncode}: {self._last_error()}"
            raise BedplateError(message)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the apply after the current operation of each node."""
        # Closing stdin is the signal: it also closes when this process is killed, so no apply continues unobserved.
        with suppress(OSError):
            cast("BinaryIO", self._process.stdin).close()

    def _last_error(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no error output"


@contextmanager
def run_apply(request: ApplyRequest) -> Iterator[ApplyProcess]:
    """Start an apply; leaving the context early stops it."""
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(  # noqa: S603  this interpreter and a module of this repository
            [sys.executable, "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Ctrl-C in the terminal must reach only this process: it would break every connection.
            start_new_session=True,
        ) as process,
    ):
        engine = ApplyProcess(process, stderr)
        try:
            write_request(cast("BinaryIO", process.stdin), request)
            yield engine
        finally:
            engine.stop()
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()


@dataclass
class NodeResult:
    """The result of one node: the changed operations by name, the number of others, and the error that ended it."""

    node: str
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    seconds: float = 0.0
    error: Event | None = None
    is_done: bool = False

    def take(self, event: Event) -> None:
        """Add an event to the result."""
        match event.step:
            case Step.OPERATION:
                self.changed.append(event.name)
            case Step.DONE:
                self.unchanged, self.seconds, self.is_done = event.unchanged, event.seconds, True
            case Step.ERROR:
                self.error, self.seconds = event, event.seconds
            case _:
                pass

    @property
    def is_held(self) -> bool:
        """Whether another apply has locked the node."""
        return self.error is not None and self.error.kind is NodeErrorKind.HELD


def exit_status(outcomes: Iterable[NodeResult], *, check: bool) -> int:
    """Return the exit code: 0 for success, 1 for a bug, 3 for drift, 5 if all nodes are locked, 6 if incomplete."""
    results = tuple(outcomes)
    incomplete = [result for result in results if not result.is_done]
    if any(result.error and result.error.kind is NodeErrorKind.DEFECT for result in incomplete):
        return BedplateError.exit_code
    if incomplete:
        return HeldError.exit_code if all(result.is_held for result in results) else PartialError.exit_code
    return ViolationError.exit_code if check and any(result.changed for result in results) else 0
