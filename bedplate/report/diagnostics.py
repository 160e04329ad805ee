"""Faults of a fleet file as an operator reads them, and as a program does."""

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from bedplate.checks.catalogue import RULES, Rule
from bedplate.checks.diagnostics import Fault, Level
from bedplate.errors import BedplateError
from bedplate.graph.audit.rules import CATALOGUE
from bedplate.report.columns import WIDTH, aligned, counted

INDENT = "    "


def fault_lines(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return what is wrong and what to do about it, fault by fault, each led by its place, key and rule."""
    told = tuple(faults)
    heads = aligned((_place(fault), fault.key or "(the file)", _rule(fault)) for fault in told)
    return tuple(line for head, fault in zip(heads, told, strict=True) for line in (head, *_body(fault)))


def verdict_lines(file: str, faults: Iterable[Fault], facts: str = "") -> Iterator[str]:
    """Yield every fault, and last how many there are or that there is none; `facts` is what was looked at."""
    told = tuple(faults)
    found = f" ({facts})" if facts else ""
    yield from fault_lines(told)
    if told:
        yield f"{tally(told)} in {file}{found}; `bedplate check --explain {told[0].code}` says more"
    else:
        yield f"{file} is fine{found}"


def refusal_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield every fault of a file that a command refuses to act on, and last that it did not."""
    told = tuple(faults)
    yield from fault_lines(told)
    yield f"error: {tally(told)} in {told[0].file}; nothing was done"


def tally(faults: Iterable[Fault]) -> str:
    """Return `2 errors, 1 warning`; empty when there is nothing to count."""
    levels = [fault.level for fault in faults]
    counts = ((levels.count(level), level) for level in Level)
    return ", ".join(counted(count, level.value) for count, level in counts if count)


def fault_document(faults: Iterable[Fault]) -> dict[str, Any]:
    """Return the faults as `check --json` prints them."""
    return {
        "faults": [
            {
                "code": fault.code,
                "level": fault.level.value,
                "file": fault.file,
                "line": fault.line,
                "column": fault.column,
                "key": fault.key,
                "message": fault.message,
                "fix": fault.fix,
            }
            for fault in faults
        ]
    }


def _place(fault: Fault) -> str:
    return f"{fault.file}:{fault.line}:{fault.column}" if fault.line else fault.file


def _rule(fault: Fault) -> str:
    rule = RULES.get(fault.code)
    return f"{fault.code} {rule.name}" if rule else fault.code


def _body(fault: Fault) -> Iterator[str]:
    yield from wrapped(fault.message)
    if fault.fix:
        yield from wrapped(f"fix: {fault.fix}")


def wrapped(text: str, indent: str = INDENT) -> list[str]:
    """Return a sentence as indented lines that fit a terminal; names and commands are never broken at a hyphen."""
    return wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def error_lines(error: BedplateError) -> tuple[str, ...]:
    """Return the lines for stderr; where and fix are left out when the error knows none."""
    told = (("error: ", error.what), ("  in   ", error.where), ("  fix  ", error.fix))
    return tuple(label + text for label, text in told if text)


def usage_lines(message: str) -> tuple[str, ...]:
    """Return the lines for a command line that cannot be understood."""
    return (
        f"error: {message}",
        "  fix  `bedplate --help` lists the commands, `bedplate COMMAND --help` its options",
    )


def defect_lines(error: Exception) -> tuple[str, ...]:
    """Return the lines for what nobody foresaw."""
    return (
        f"error: a defect in bedplate: {type(error).__name__}: {error}",
        "  fix  please report it with what `BEDPLATE_TRACEBACK=1 bedplate ...` prints",
    )


def rule_lines(rule: Rule) -> Iterator[str]:
    """Yield what a rule asks for, why, and what to do about a fault under it."""
    yield f"{rule.code} {rule.name} ({rule.level.value})"
    yield from aligned(
        (
            ("  why", rule.reason),
            ("  fix", rule.fix),
            ("  source", rule.source or "bedplate's own"),
            ("  allow", f"`allow: {{{rule.code}: the reason}}` in the file" if rule.allowable else "never"),
        )
    )


def rules_lines(rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield one line a rule, by code, and how many there are."""
    yield from aligned((code, rules[code].name, rules[code].reason) for code in sorted(rules))
    yield f"{counted(len(rules), 'rule')}; `bedplate check --explain CODE` says more of one"


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
