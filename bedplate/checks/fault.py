"""One thing that is wrong with a fleet file: where, what, why, and the nearest right value."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Whether a fault stops the command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `key` is the dotted path (`regions.us-east-1.zones.0`), `line` and `column` count from 1."""

    code: str
    level: Level
    key: str
    message: str
    fix: str
    file: str = ""
    line: int = 0
    column: int = 0
