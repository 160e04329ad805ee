"""One thing that is wrong with what a stack holds."""

from dataclasses import dataclass

from bedplate.audit.rules import STACK_RULES
from bedplate.checks.fault import Level


@dataclass(frozen=True, slots=True)
class StackFault:
    """One fault; `urn` is the resource's, `key` the dotted path of its property, camelCase as registered."""

    code: str
    level: Level
    urn: str
    key: str
    message: str
    fix: str


def fault(code: str, urn: str, key: str, message: str) -> StackFault:
    """Return a fault under the rule of that code."""
    rule = STACK_RULES[code]
    return StackFault(code, rule.level, urn, key, message, rule.fix)
