"""The page of all checks, docs/checks.md: `make docs` prints it, and a test holds the file to it."""

from collections.abc import Iterable, Iterator, Mapping

from bedplate.audit.rules import CATALOGUE
from bedplate.checks.rules import Rule

_OPENING = """\
# Checks

Made from the code by `make docs`. `bedplate check --explain CODE` says the same of one rule.

An error stops the command that meets it, a warning does not. A rule with a yes under *allow* may be broken by a fleet
whose file says why: `allow: {CODE: the reason}`.
"""
_PARTS: Mapping[str, str] = {
    "EW": "The fleet file",
    "S": "What the stacks hold",
}
_TOLD: Mapping[str, str] = {
    "EW": "`bedplate check`, and every command before it acts.",
    "S": (
        "`bedplate rehearse`, on all that it made, and `bedplate audit-graph GRAPH` on any graph in the form of "
        "`bedplate graph`. What a graph does not show, since it is masked, unknown or left out, is not judged."
    ),
}
_HEAD = ("| code | rule | level | why | fix | allow | source |", "| --- | --- | --- | --- | --- | --- | --- |")


def checks_page() -> str:
    """Return the page in Markdown."""
    return "\n".join((_OPENING, *(line for letters in _PARTS for line in _section(letters))))


def _section(letters: str) -> Iterator[str]:
    rules = [CATALOGUE[code] for code in sorted(CATALOGUE, key=lambda code: (code[1:], code)) if code[0] in letters]
    yield from (f"## {_PARTS[letters]}", "", _TOLD[letters], "", *_HEAD)
    yield from (_row(_cells(rule)) for rule in rules)
    yield ""


def _cells(rule: Rule) -> tuple[str, ...]:
    allow = "yes" if rule.allowable else ""
    return (rule.code, rule.name, rule.level.value, rule.reason, rule.fix, allow, rule.source)


def _row(cells: Iterable[str]) -> str:
    # In a table a bar ends a cell, and what looks like a tag would vanish.
    shown = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(shown)} |"
