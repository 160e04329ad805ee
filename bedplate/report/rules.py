"""Reports of the rules: `check --explain` and docs/checks.md."""

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
    yield f"{rule.code} {rule.name} ({_level(rule)})"
    yield from aligned(
        (
            ("  why", rule.reason),
            ("  fix", rule.fix),
            ("  source", rule.source or "bedplate"),
            ("  allow", f"`allow: {{{rule.code}: REASON}}` in the fleet file" if rule.allowable else "never"),
        )
    )


def _level(rule: Rule) -> str:
    """Return the level of a rule; `up` needs some that `check` only reports."""
    return "error in `up` only" if rule.level is Level.DEPLOYMENT else rule.level.value


def rules_lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield one line for each rule, by code, and their number."""
    yield from aligned((code, rules[code].name, rules[code].reason) for code in sorted(rules))
    yield f"{counted(len(rules), 'rule')}; details: `bedplate check --explain CODE`"
    yield "E: error, of any command or of `up` only; W: warning; S: rule about stack resources"


_OPENING = """\
# Checks

Generated from the code by `make docs`. `bedplate check --explain CODE` shows one rule.

An error stops the command, a warning does not. `check` also lists errors in `up` only, which stop deployments. A fleet
file can allow violations of the rules with a yes under *allow*: `allow: {CODE: REASON}`.
"""
# The first letters of codes, with the heading of their section and where the rules are checked.
_PARTS = {
    "EW": ("The fleet file", "Checked by `bedplate check`, and by every command that reads the fleet file."),
    "S": (
        "Stack resources",
        (
            "Checked by `bedplate rehearse` after the last change, and by `bedplate audit-graph GRAPH` for any output "
            "of `bedplate graph`. Values that the graph does not show, because they are secret, unknown or missing, "
            "pass."
        ),
    ),
}
_HEAD = ("| code | rule | level | why | fix | allow | source |", "| --- | --- | --- | --- | --- | --- | --- |")


def checks_page() -> str:
    """Return docs/checks.md."""
    return "\n".join((_OPENING, *(line for letters, words in _PARTS.items() for line in _section(letters, *words))))


def _section(letters: str, heading: str, checked_by: str) -> Iterator[str]:
    rules = [ALL_RULES[code] for code in sorted(ALL_RULES, key=lambda code: (code[1:], code)) if code[0] in letters]
    yield from (f"## {heading}", "", checked_by, "", *_HEAD)
    yield from (_row(rule) for rule in rules)
    yield ""


def _row(rule: Rule) -> str:
    allow = "yes" if rule.allowable else ""
    cells = (rule.code, rule.name, _level(rule), rule.reason, rule.fix, allow, rule.source)
    # In a Markdown table a bar ends a cell, and < may start a tag.
    shown = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(shown)} |"
