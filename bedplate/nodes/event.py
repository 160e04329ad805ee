"""What an apply or an audit tells while it works: lines of JSON, from the process that works to the one that shows."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum


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
