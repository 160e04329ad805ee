"""What the compliance checks found on machines, as an operator reads it and as a program does."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from jinja2 import Environment, StrictUndefined

from bedplate.nodes.apply import Event, Step
from bedplate.nodes.audit import Findings, Outcome, Verdict
from bedplate.report.columns import WIDTH, aligned, counted
from bedplate.report.diagnostics import INDENT, wrapped

_HEADING = ("machine", "kept", "violated", "not judged", "not seen", "not about it", "time")
_RIGHT = (1, 2, 3, 4, 5, 6)
# More than this of what a check saw helps nobody in a terminal; the documents hold it whole.
_MOST_LINES = 6


def compliance_lines(findings: Iterable[Findings], *, whole: bool = False) -> Iterator[str]:
    """Yield a table by machine, then each rule that is violated, not judged or not seen, or with `whole` every rule."""
    told = tuple(findings)
    rows = [_row(each) for each in told if not each.unreached]
    yield from aligned((_HEADING, *rows), right=_RIGHT) if rows else ()
    for each in told:
        yield from (f"{each.node}: not reached", *wrapped(_harmless(each.unreached))) if each.unreached else ()
    for each in told:
        shown = [verdict for verdict in each.verdicts if whole or verdict.outcome is not Outcome.KEPT]
        yield from ("", each.node, *_rules(shown)) if shown else ()
    yield from ("", _tally(told), *_next(told))


def compliance_document(findings: Iterable[Findings]) -> dict[str, Any]:
    """Return the findings as `node audit --json` prints them."""
    told = tuple(findings)
    return {"ok": is_compliant(told), "nodes": [asdict(each) for each in told]}


def event_line(event: Event) -> str | None:
    """Return what is worth a line while the audit goes on: a machine that is done, or not reached."""
    match event.step:
        case Step.DONE:
            rules = counted(event.changed + event.unchanged, "rule")
            return f"{event.node}: {rules}, {event.changed:,} violated, {event.seconds:.1f} s"
        case Step.TROUBLE:
            return f"{event.node}: {event.kind}: {_harmless(event.words)}"
        case _:
            return None


def is_compliant(findings: Iterable[Findings]) -> bool:
    """Tell whether every machine was reached and seen whole, and violates nothing."""
    return not any(is_partial(each) or each.of(Outcome.VIOLATED) for each in findings)


def is_partial(findings: Findings) -> bool:
    """Tell whether a machine was not reached, or did not answer what a rule asks."""
    return bool(findings.unreached or findings.of(Outcome.UNSEEN))


def _row(each: Findings) -> tuple[str, ...]:
    counts = (f"{len(each.of(outcome)):,}" for outcome in Outcome)
    return each.node, *counts, f"{each.apart:,}", f"{each.seconds:.1f} s"


def _rules(shown: Sequence[Verdict]) -> Iterator[str]:
    # The outcome comes first: what falls off the edge of a narrow terminal is the end of a rule's name.
    heads = aligned((verdict.outcome.value, verdict.role, verdict.rule) for verdict in shown)
    for head, verdict in zip(heads, shown, strict=True):
        yield f"{INDENT}{head}"
        if verdict.outcome is not Outcome.KEPT:
            yield from wrapped(verdict.promise, INDENT * 2)
            words = (part for line in verdict.words.splitlines() for part in _fitting(line))
            yield from islice(words, _MOST_LINES)


def _fitting(line: str) -> Iterator[str]:
    """Yield a line of what was seen in the width of a terminal; a word that is longer is cut."""
    depth = INDENT * 3 + " " * (len(line) - len(line.lstrip()))
    for part in wrapped(_harmless(line), depth):
        yield part if len(part) <= WIDTH else f"{part[: WIDTH - 3]}..."


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


_TEMPLATE = Path(__file__).with_name("compliance_page.html.j2")


def compliance_page(fleet: str, day: str, findings: Iterable[Findings]) -> str:
    """Return the page; `day` says when the machines were looked at."""
    told = tuple(findings)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(fleet=fleet, day=day, nodes=told, outcomes=tuple(Outcome), ok=is_compliant(told)) + "\n"


# What XML 1.0 cannot hold; a machine may answer anything.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {Outcome.VIOLATED: "failure", Outcome.UNJUDGED: "skipped", Outcome.UNSEEN: "error"}
_REACH = "is-reached"


def junit(findings: Iterable[Findings]) -> bytes:
    """Return the file; a machine that was not reached has a case that is an error, as has what it did not answer."""
    root = Element("testsuites", name="bedplate node audit")
    for each in findings:
        _suite(root, each)
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(root: Element, each: Findings) -> None:
    lost = bool(each.unreached)
    failures, skipped, errors = (len(each.of(outcome)) for outcome in _ELEMENTS)
    told = {"tests": len(each.verdicts) + lost, "failures": failures, "errors": errors + lost, "skipped": skipped}
    suite = SubElement(root, "testsuite", {"name": each.node, **{key: str(count) for key, count in told.items()}})
    for verdict in each.verdicts:
        _case(suite, each.node, verdict)
    if each.unreached:
        case = SubElement(suite, "testcase", classname=each.node, name=_REACH, time="0")
        SubElement(case, "error", message=_plain(each.unreached))


def _case(suite: Element, node: str, verdict: Verdict) -> None:
    place = f"{node}.{verdict.role}"
    case = SubElement(suite, "testcase", classname=place, name=verdict.rule, time=f"{verdict.seconds:.3f}")
    name = _ELEMENTS.get(verdict.outcome)
    if name:
        SubElement(case, name, message=_plain(verdict.promise)).text = _plain(verdict.words)


def _plain(text: str) -> str:
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
