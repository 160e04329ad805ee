"""What an apply did to each node, as a table with the names of what changed, and as a document for programs."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

from bedplate.nodes.event import Event, Step
from bedplate.nodes.outcome import Outcome
from bedplate.report.columns import WIDTH, aligned, counted

_RIGHT = (1, 2, 3)


def apply_lines(outcomes: Iterable[Outcome], *, check: bool) -> Iterator[str]:
    """Yield a row a node, under it what changed or would, or why it ended early; then what to do next."""
    every = tuple(outcomes)
    heading = ("node", "would change" if check else "changed", "unchanged", "time")
    rows = aligned((heading, *(_row(each) for each in every)), right=_RIGHT)
    yield rows[0]
    for row, each in zip(rows[1:], every, strict=True):
        yield from _hung(f"{row}   ", _reason(each)) if each.trouble else (row,)
        for name in each.changed:
            yield from _hung("  ~ " if check else "  + ", name)
        if each.trouble and each.trouble.fix:
            yield from _hung("  fix  ", each.trouble.fix)
    yield ""
    yield from wrap(_verdict(every, check=check), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def apply_document(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return what became of each node as JSON's own types."""
    return {"nodes": {each.node: _entry(each) for each in outcomes}}


def event_line(event: Event) -> str | None:
    """Return what is worth a line while the work goes on; None for what the table tells at its end."""
    match event.step:
        case Step.OPENED:
            return f"{event.node}: looking"
        case Step.NOTE:
            return f"{event.node}: {event.words}"
        case Step.OPERATION:
            return f"{event.node}: {event.name}"
        case Step.TROUBLE:
            return f"{event.node}: {event.kind}: {event.words}"
        case _:
            return None


def _row(each: Outcome) -> tuple[str, ...]:
    unchanged = "-" if each.trouble else str(each.unchanged)
    took = f"{each.seconds:.1f} s" if each.seconds or each.is_done else "-"
    return (each.node, str(len(each.changed)), unchanged, took)


def _reason(each: Outcome) -> str:
    return f"{each.trouble.kind}: {each.trouble.words}" if each.trouble else ""


def _hung(lead: str, text: str) -> list[str]:
    """Return a text behind its lead, in a column of its own where it takes several lines; no word is broken."""
    below = " " * len(lead)
    return wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def _verdict(every: Sequence[Outcome], *, check: bool) -> str:
    early = [each for each in every if not each.is_done]
    if early:
        done = len(every) - len(early)
        return f"{counted(done, 'node')} of {len(every)} done; not done: {', '.join(each.node for each in early)}"
    changed = sum(bool(each.changed) for each in every)
    if check:
        if changed:
            return f"{changed} of {counted(len(every), 'node')} to be changed: `bedplate node apply` does it"
        return f"{counted(len(every), 'node')}: all as the plan has it"
    return f"{counted(len(every), 'node')} done, {changed} changed"


def _entry(each: Outcome) -> dict[str, Any]:
    trouble = each.trouble
    return {
        "status": str(trouble.kind) if trouble else "done" if each.is_done else "stopped",
        "changed": each.changed,
        "unchanged": each.unchanged,
        "seconds": round(each.seconds, 3),
        "what": trouble.words if trouble else "",
        "fix": trouble.fix if trouble else "",
    }
