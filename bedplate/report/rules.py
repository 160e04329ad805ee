"""Reports of the rules: `check --explain`."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from bedplate.checks.catalogue import RULES
from bedplate.graph.audit.run import STACK_RULES
from bedplate.report.columns import aligned, counted
from bedplate.rules import Level, Rule

ALL_RULES: Mapping[str, Rule] = MappingProxyType({**RULES, **STACK_RULES})
"""The rules of fleet files and of stack resources, by code."""


def rule_lines(rule: Rule) -> Iterator[str]:
    """Yield the reason for a rule, the fix, the source, and whether a fleet file may allow violations."""
    yield f"{rule.code} {rule.name} ({level_words(rule)})"
    yield from aligned(
        (
            ("  why", rule.reason),
            ("  fix", rule.fix),
            ("  source", rule.source or "bedplate"),
            ("  allow", f"`allow: {{{rule.code}: REASON}}` in the fleet file" if rule.allowable else "never"),
        )
    )


def level_words(rule: Rule) -> str:
    """Return the level of a rule; `up` needs some that `check` only reports."""
    return "error in `up` only" if rule.level is Level.DEPLOYMENT else rule.level.value


def rules_lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield one line for each rule, by code, and their number."""
    yield from aligned((code, rules[code].name, rules[code].reason) for code in sorted(rules))
    yield f"{counted(len(rules), 'rule')}; details: `bedplate check --explain CODE`"
    yield "E: error, of any command or of `up` only; W: warning; S: rule about stack resources"
