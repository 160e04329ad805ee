"""Rules and faults: what must hold in a fleet file, and one violation with its position, message and fix."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Level(StrEnum):
    """Whether a fault stops the command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fault:
    """One violation of a rule.

    `key` is the dotted path (`regions.us-east-1.zones.0`); `line` and `column` start at 1.
    """

    code: str
    level: Level
    key: str
    message: str
    fix: str
    file: str = ""
    line: int = 0
    column: int = 0


def fault(code: str, key: str, message: str, fix: str = "") -> Fault:
    """Return a fault of the rule with this code; without a `fix`, with the rule's own."""
    from bedplate.checks.catalogue import RULES  # noqa: PLC0415  # catalogue.py imports this module

    rule = RULES[code]
    return Fault(code, rule.level, key, message, fix or rule.fix)


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement, with its reason and the general fix of a violation.

    `source` names the specification, if it is not bedplate's own. `allowable`: a fleet may violate the rule if it names
    it under `allow`, with a reason. `at_key`: a fault is reported at the key, even if its value is a scalar. `late`:
    the rule needs a plan and its lock. `section` is the top-level key that the rule is about; empty: every file.
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
    section: str = ""

    @property
    def level(self) -> Level:
        """The level of the rule's faults: a warning for codes that start with W, and for rules with `warns`."""
        return Level.WARNING if self.warns or self.code.startswith("W") else Level.ERROR


def about(section: str, *rules: Rule) -> tuple[Rule, ...]:
    """Return rules that apply only to files with this top-level key."""
    return tuple(replace(rule, section=section) for rule in rules)
