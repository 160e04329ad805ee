"""Reports of faults in a fleet file, and of errors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bedplate.checks.catalogue import RULES
from bedplate.report.columns import aligned, counted, wrapped
from bedplate.rules import Fault, Level


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
    errors = [fault for fault in rows if fault.level is Level.ERROR]
    needs = dict.fromkeys(_rule(fault) for fault in rows if fault.level is Level.DEPLOYMENT)
    details = f"; details: `bedplate check --explain {(*errors, *rows)[0].code}`" if rows else ""
    if needs and not errors:
        yield f"{file} is valid{checked}; `up` needs: {', '.join(needs)}{details}"
        rows = tuple(fault for fault in rows if fault.level is Level.WARNING)
    if rows:
        yield f"{tally(fault.level for fault in rows)} in {file}{checked}{details}"
    elif not needs:
        yield f"{file} is valid{checked}"


def refusal_lines(faults: Iterable[Fault]) -> Iterator[str]:
    """Yield the faults of a file that a command rejects."""
    rows = tuple(faults)
    yield from fault_lines(rows)
    yield f"error: {tally(fault.level for fault in rows)} in {rows[0].file}; nothing was done"


_NOUNS = {
    Level.ERROR: ("error",),
    Level.DEPLOYMENT: ("need of `up`", "needs of `up`"),
    Level.WARNING: ("warning",),
}


def tally(levels: Iterable[Level]) -> str:
    """Return `2 errors, 1 need of `up`, 3 warnings`; empty without faults."""
    counts = Counter(levels)
    return ", ".join(counted(counts[level], *noun) for level, noun in _NOUNS.items() if counts[level])


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
