"""Rules of fleet files and of stacks, by their constants; and faults of a fleet file, with position and fix."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum


class Level(StrEnum):
    """Whether a fault stops the command; one for a deployment stops `up` only."""

    ERROR = "error"
    DEPLOYMENT = "deployment"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement, with its reason and the general fix of a violation.

    `source` names the specification, if it is not bedplate's own. `allowable`: a fleet may violate the rule if it names
    it under `allow`, with a reason. `at_key`: a fault is reported at the key, even if its value is a scalar. `late`:
    the rule needs a plan and its lock. `warns`: its faults are warnings, as those of codes that start with W. `section`
    is the top-level key that the rule is about; empty: every file. `name` is that of its constant, once `rules_of` has
    collected it.
    """

    code: str
    reason: str
    fix: str
    source: str = ""
    allowable: bool = False
    at_key: bool = False
    warns: bool = False
    is_for_deployment: bool = False
    late: bool = False
    section: str = ""
    name: str = ""

    @property
    def level(self) -> Level:
        """The level of the rule's faults."""
        if self.is_for_deployment:
            return Level.DEPLOYMENT
        return Level.WARNING if self.warns or self.code.startswith("W") else Level.ERROR


def rules_of(modules: Iterable[object]) -> Iterator[Rule]:
    """Yield the rules that are constants of modules: `MIN_ABOVE_MAX` has the name min-above-max."""
    for module in modules:
        for constant, rule in vars(module).items():
            if isinstance(rule, Rule):
                yield replace(rule, name=constant.lower().replace("_", "-"))


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


def fault(rule: Rule, key: str, message: str, fix: str = "") -> Fault:
    """Return a fault of the rule; without a `fix`, with the rule's own."""
    return Fault(rule.code, rule.level, key, message, fix or rule.fix)
