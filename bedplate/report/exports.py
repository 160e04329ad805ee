"""What the stacks of a rehearsal export, as an operator reads it."""

import json
from collections.abc import Iterator

from bedplate.rehearsal.report import StackReport
from bedplate.report.columns import aligned


def export_lines(stack: StackReport) -> Iterator[str]:
    """Yield the name and value of each export, secrets masked; nothing where there is none."""
    if stack.exports:
        yield from ("", "what it exports:")
        yield from aligned((f"  {name}", _told(value)) for name, value in sorted(stack.exports.items()))


def _told(value: object) -> str:
    """Return text as it is, and all else, such as text of many lines, as JSON."""
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)
