"""Faults of a fleet file as an operator reads them, and as a program does."""

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Any

from bedplate.checks.fault import Fault, Level
from bedplate.checks.rules import RULES
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
