"""Reports of faults in a fleet file, of errors, and of the rules (`check --explain` and docs/checks.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from bedplate.checks.catalogue import RULES
from bedplate.graph.audit.document import StackFault
from bedplate.graph.audit.run import STACK_RULES
from bedplate.report.columns import aligned, counted, wrapped
from bedplate.rules import Fault, Level, Rule

ALL_RULES: Mapping[str, Rule] = MappingProxyType({**RULES, **STACK_RULES})
"""The rules of fleet files and of stack resources, by code."""


def fault_lines(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return the faults: each with its place, key and rule on one line, then the message and the fix."""
    rows = tuple(faults)
    heads = aligned((_place(fault), fault.key or "(the file)", _rule(fault)) for fault in rows)
    return tuple(line for head, fault in zip(heads, rows, strict=True) for line in (head, *_body(fault)))


def verdict_lines(file: str, faults: Iterable[Fault], facts: str = "") -> Iterator[str]:
    """Yield the faults and a summary; `facts` says what was checked."""
    rows = tuple(faults)
    checked = f" ({facts})" if facts else ""
    yield from fault_lines(rows)
    if rows:
        first = next((fault for fault in rows if fault.level is Level.ERROR), rows[0])
        yield f"{tally(rows)} in {file}{checked}; details: `bedplate check --explain {first.code}`"
    else:
        yield f"{file} is valid{checked}"


def refusal_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield the faults of a file that a command rejects."""
    rows = tuple(faults)
    yield from fault_lines(rows)
    yield f"error: {tally(rows)} in {rows[0].file}; nothing was done"


def tally(faults: Iterable[Fault | StackFault]) -> str:
    """Return `2 errors, 1 warning`; empty without faults."""
    levels = [fault.level for fault in faults]
    counts = ((levels.count(level), level) for level in Level)
    return ", ".join(counted(count, level.value) for count, level in counts if count)


def fault_document(faults: Iterable[Fault]) -> dict[str, Any]:
    """Return the document of `check --json`."""
    return {"faults": [asdict(fault) for fault in faults]}


def _place(fault: Fault) -> str:
    return f"{fault.file}:{fault.line}:{fault.column}" if fault.line else fault.file


def _rule(fault: Fault) -> str:
    rule = RULES.get(fault.code)
    return f"{fault.code} {rule.name}" if rule else fault.code


def _body(fault: Fault) -> Iterator[str]:
    yield from wrapped(fault.message)
    if fault.fix:
        yield from wrapped(f"fix: {fault.fix}")


def usage_lines(message: str, command: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines for an invalid command line, with the help of the command if it has one."""
    return (f"error: {' '.join(message.split())}", f"  fix  see `{' '.join(('bedplate', *command))} --help`")


def defect_lines(error: Exception) -> tuple[str, ...]:
    """Return the lines for an unexpected exception."""
    return (
        f"error: internal error: {type(error).__name__}: {error}",
        "  fix  report it, with the output of `BEDPLATE_TRACEBACK=1 bedplate ...`",
    )


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
    """Return the level of a rule; some warnings of `check` are errors in a deployment."""
    return f"{rule.level}; error in `pulumi up`" if rule.warns and rule.code.startswith("E") else rule.level.value


def rules_lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield one line for each rule, by code, and their number."""
    yield from aligned((code, rules[code].name, rules[code].reason) for code in sorted(rules))
    yield f"{counted(len(rules), 'rule')}; details: `bedplate check --explain CODE`"
    yield "E: error, W: warning, S: rule about stack resources"


_OPENING = """\
# Checks

Generated from the code by `make docs`. `bedplate check --explain CODE` shows one rule.

An error stops the command, a warning does not. A fleet file can allow violations of the rules with a yes under *allow*:
`allow: {CODE: REASON}`.
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
