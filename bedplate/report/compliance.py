"""What the compliance checks found on machines, as an operator reads it and as a program does."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bedplate.nodes.verdict import Findings, Outcome, Verdict
from bedplate.report.columns import WIDTH, aligned, counted
from bedplate.report.faults import INDENT, wrapped

_HEADING = ("machine", "kept", "violated", "not judged", "not seen", "not about it", "time")
_RIGHT = (1, 2, 3, 4, 5, 6)
# More than this of what a check saw helps nobody in a terminal; the documents hold it whole.
_MOST_LINES = 6
_ROOM = WIDTH - 2 * len(INDENT)


def compliance_lines(findings: Iterable[Findings], *, whole: bool = False) -> Iterator[str]:
    """Yield a table by machine, then each rule that is violated, not judged or not seen, or with `whole` every rule."""
    told = tuple(findings)
    rows = [_row(each) for each in told if not each.unreached]
    yield from aligned((_HEADING, *rows), right=_RIGHT) if rows else ()
    for each in told:
        yield from (f"{each.node}: not reached", *wrapped(_harmless(each.unreached))) if each.unreached else ()
    rules = [(each.node, verdict) for each in told for verdict in each.verdicts]
    shown = [(node, verdict) for node, verdict in rules if whole or verdict.outcome is not Outcome.KEPT]
    if shown:
        yield from ("", *_rules(shown))
    yield from ("", _tally(told), *_next(told))


def compliance_document(findings: Iterable[Findings]) -> dict[str, Any]:
    """Return the findings as `node audit --json` prints them."""
    told = tuple(findings)
    return {"ok": is_compliant(told), "nodes": [asdict(each) for each in told]}


def is_compliant(findings: Iterable[Findings]) -> bool:
    """Tell whether every machine was reached and seen whole, and violates nothing."""
    return not any(is_partial(each) or each.of(Outcome.VIOLATED) for each in findings)


def is_partial(findings: Findings) -> bool:
    """Tell whether a machine was not reached, or did not answer what a rule asks."""
    return bool(findings.unreached or findings.of(Outcome.UNSEEN))


def _row(each: Findings) -> tuple[str, ...]:
    counts = (f"{len(each.of(outcome)):,}" for outcome in Outcome)
    return each.node, *counts, f"{each.apart:,}", f"{each.seconds:.1f} s"


def _rules(shown: Sequence[tuple[str, Verdict]]) -> Iterator[str]:
    heads = aligned((node, verdict.role, verdict.rule, verdict.outcome.value) for node, verdict in shown)
    for head, (_, verdict) in zip(heads, shown, strict=True):
        yield head
        if verdict.outcome is not Outcome.KEPT:
            yield from wrapped(verdict.promise)
            yield from (f"{INDENT * 2}{_plain(line)}" for line in verdict.words.splitlines()[:_MOST_LINES])


def _plain(line: str) -> str:
    text = _harmless(line)
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 3]}..."


def _harmless(text: str) -> str:
    """Return a text without what would steer a terminal: a machine may answer anything."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _tally(findings: Sequence[Findings]) -> str:
    reached = [each for each in findings if not each.unreached]
    rules = sum(len(each.verdicts) for each in reached)
    violations = sum(len(each.of(Outcome.VIOLATED)) for each in reached)
    unreached = len(findings) - len(reached)
    found = counted(violations, "violation") if violations else "no violation"
    unseen = sum(len(each.of(Outcome.UNSEEN)) for each in reached)
    silent = f"; {counted(unseen, 'rule')} not seen" if unseen else ""
    missing = f"; {counted(unreached, 'machine')} not reached" if unreached else ""
    return f"{found} in {counted(rules, 'rule')} on {counted(len(reached), 'machine')}{silent}{missing}"


def _next(findings: Sequence[Findings]) -> Iterator[str]:
    names = [each.node for each in findings if each.of(Outcome.VIOLATED)]
    if names:
        yield f"next: `bedplate node apply {' '.join(names)}` makes what was declared so"
    silent = [each.node for each in findings if each.of(Outcome.UNSEEN)]
    if silent:
        yield f"not seen on {', '.join(silent)}: is a file server gone? Look again when it is back"
