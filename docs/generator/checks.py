"""docs/checks.md: every rule, with its reason and fix."""

from collections.abc import Iterator

from bedplate.report.rules import ALL_RULES, level_words
from bedplate.rules import Rule

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
    cells = (rule.code, rule.name, level_words(rule), rule.reason, rule.fix, allow, rule.source)
    # In a Markdown table a bar ends a cell, and < may start a tag.
    shown = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(shown)} |"
