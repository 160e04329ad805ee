"""What the process that works is ordered to do: handed over on its input, so that no list of processes shows it."""

import copyreg
import json
import pickle
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import IO, BinaryIO, cast

from bedplate.errors import BedplateError, HeldError, PartError, ViolationError
from bedplate.plan.nodes import NodePlan

_SIZE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Target:
    """A node to work on: its plan, and the command that runs a program on it, as `ssh -F FILE NAME`."""

    node: NodePlan
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """An apply, or with `check` a look at what one would change; `only` names the roles that are wanted, None all."""

    targets: tuple[Target, ...]
    who: str
    check: bool = False
    only: frozenset[str] | None = None
    folder: str = "/run/bedplate"
    memory: str = "/var/lib/bedplate"


def write_order(stream: BinaryIO, order: Order) -> None:
    """Hand an order over."""
    text = pickle.dumps(order)
    stream.write(_SIZE.pack(len(text)) + text)
    stream.flush()


def read_order(stream: BinaryIO) -> Order:
    """Take an order; it comes from the process that started this one, and from nobody else."""
    (size,) = _SIZE.unpack(stream.read(_SIZE.size))
    order = pickle.loads(stream.read(size))  # noqa: S301  our own parent's pipe
    if not isinstance(order, Order):
        raise TypeError(type(order))
    return order


def _thaw(content: dict[object, object]) -> Mapping[object, object]:
    return MappingProxyType(content)


def _freeze(view: Mapping[object, object]) -> tuple[object, tuple[dict[object, object]]]:
    return _thaw, (dict(view),)


# Plans hold views that cannot be written to; pickle knows none.
copyreg.pickle(MappingProxyType, _freeze)  # type: ignore[arg-type]


class Step(StrEnum):
    """What has just happened on a node."""

    OPENED = "opened"
    NOTE = "note"
    BEGINS = "begins"
    OPERATION = "operation"
    DONE = "done"
    TROUBLE = "trouble"


class Kind(StrEnum):
    """How the work on a node came to an early end."""

    UNREACHED = "not reached"
    REFUSED = "refused"
    HELD = "held"
    FAILED = "failed"
    CUT = "cut off"
    STOPPED = "stopped"
    DEFECT = "defect"


class Trouble(Exception):
    """Why the work on a node ended early: `what` happened, and the `fix`."""

    def __init__(self, kind: Kind, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened on a node; what a step has no use for is left empty."""

    node: str
    step: Step
    name: str = ""
    """The operation, or the rule."""
    words: str = ""
    fix: str = ""
    kind: Kind | None = None
    changed: int = 0
    """Operations that changed something, or rules that are violated."""
    unchanged: int = 0
    """All others that are done."""
    seconds: float = 0.0
    ahead: int = 0
    """Rules that are still to be judged."""

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps(asdict(self))


def event_of(line: str) -> Event:
    """Return the event of a line; raises ValueError for any other."""
    told = json.loads(line)
    kind = Kind(told["kind"]) if told["kind"] else None
    return Event(**{**told, "step": Step(told["step"]), "kind": kind})


def trouble_of(node: str, trouble: Trouble) -> Event:
    """Return how a node's early end is told."""
    return Event(node, Step.TROUBLE, words=trouble.what, fix=trouble.fix, kind=trouble.kind)


_PROGRAM = "roles.run"


class Engine:
    """A running apply."""

    def __init__(self, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        self._process = process
        self._said = said

    def events(self) -> Iterator[Event]:
        """Yield what happens until nothing more does; BedplateError where the process itself came to grief."""
        for line in cast("BinaryIO", self._process.stdout):
            yield event_of(line.decode())
        if self._process.wait() != 0:
            raise BedplateError(f"the process that applies ended with status {self._process.returncode}: {self._end()}")

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Let each node finish the operation that it is at, and begin no other."""
        # Its input ends also when this process is killed, so that it never works on unseen.
        with suppress(OSError):
            cast("BinaryIO", self._process.stdin).close()

    def _end(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"


@contextmanager
def working(order: Order) -> Iterator[Engine]:
    """Start the work on an order; whoever leaves early ends it."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603  our own interpreter and our own module
            [sys.executable, "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            # A terminal's Ctrl-C is for us alone: it would cut every connection.
            start_new_session=True,
        ) as process,
    ):
        engine = Engine(process, said)
        try:
            write_order(cast("BinaryIO", process.stdin), order)
            yield engine
        finally:
            engine.stop()
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()


@dataclass
class Outcome:
    """One node: the names of what changed or would, how much did not, and why it ended early, where it did."""

    node: str
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    seconds: float = 0.0
    trouble: Event | None = None
    is_done: bool = False

    def take(self, event: Event) -> None:
        """Enter what has happened."""
        match event.step:
            case Step.OPERATION:
                self.changed.append(event.name)
            case Step.DONE:
                self.unchanged, self.seconds, self.is_done = event.unchanged, event.seconds, True
            case Step.TROUBLE:
                self.trouble, self.seconds = event, event.seconds
            case _:
                pass

    @property
    def is_held(self) -> bool:
        """Whether somebody else works on it."""
        return self.trouble is not None and self.trouble.kind is Kind.HELD


def exit_status(outcomes: Iterable[Outcome], *, check: bool) -> int:
    """Return 0 where all is well; 1 for a defect, 3 for drift that was found, 5 where others hold all, 6 in part."""
    every = tuple(outcomes)
    early = [each for each in every if not each.is_done]
    if any(each.trouble and each.trouble.kind is Kind.DEFECT for each in early):
        return BedplateError.exit_code
    if early:
        return HeldError.exit_code if all(each.is_held for each in every) else PartError.exit_code
    return ViolationError.exit_code if check and any(each.changed for each in every) else 0
