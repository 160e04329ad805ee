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


def fault(code: str, key: str, message: str, fix: str = "") -> Fault:
    """Return a fault under the rule of that code; without a `fix`, the rule's own."""
    from bedplate.checks.catalogue import RULES  # noqa: PLC0415  # a valid file needs no table of rules: it costs 20 ms

    rule = RULES[code]
    return Fault(code, rule.level, key, message, fix or rule.fix)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold, why, and what to do where it does not.

    `source` names who says so, where it is not bedplate. A fleet may break an `allowable` rule by naming it
    under `allow`, with the reason. `at_key`: the fault is told at the key, even where its value is one word.
    `late`: the file alone does not show whether it is broken, a plan and its lock do.
    """

    code: str
    name: str
    reason: str
    fix: str
    source: str = ""
    allowable: bool = False
    at_key: bool = False
    warns: bool = False
    late: bool = False

    @property
    def level(self) -> Level:
        """Rules of codes that start with W only warn, and so do those that say so."""
        return Level.WARNING if self.warns or self.code.startswith("W") else Level.ERROR
