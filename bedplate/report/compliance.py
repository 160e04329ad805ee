"""Reports of `node audit`: text, JSON, an HTML page and JUnit XML."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from jinja2 import Environment, StrictUndefined

from bedplate.nodes.apply import Event, Step
from bedplate.nodes.audit import Findings, RuleOutcome, Verdict
from bedplate.report.columns import INDENT, WIDTH, aligned, counted, wrapped

_HEADING = ("machine", "passed", "failed", "skipped", "unknown", "not applicable", "time")
_RIGHT = (1, 2, 3, 4, 5, 6)
# Longer output of a check is cut in the terminal; JSON, HTML and JUnit contain all of it.
_MAX_LINES = 6


def compliance_lines(findings: Iterable[Findings], *, whole: bool = False) -> Iterator[str]:
    """Yield a table of machines, then the rules that do not pass; with `whole` all rules."""
    machines = tuple(findings)
    rows = [_row(machine) for machine in machines if not machine.unreached]
    yield from aligned((_HEADING, *rows), right=_RIGHT) if rows else ()
    for machine in machines:
        if machine.unreached:
            yield from (f"{machine.node}: not reached", *wrapped(machine.unreached))
    for machine in machines:
        shown = [verdict for verdict in machine.verdicts if whole or verdict.outcome is not RuleOutcome.PASSED]
        yield from ("", machine.node, *_rules(shown)) if shown else ()
    yield from ("", _tally(machines), *_next(machines))


def compliance_document(findings: Iterable[Findings]) -> dict[str, Any]:
    """Return the findings as `node audit --json` prints them."""
    machines = tuple(findings)
    return {"ok": is_compliant(machines), "nodes": [asdict(machine) for machine in machines]}


def event_line(event: Event) -> str | None:
    """Return the progress line of a finished or unreachable machine; None for other events."""
    match event.step:
        case Step.DONE:
            rules = counted(event.changed + event.unchanged, "rule")
            return f"{event.node}: {rules}, {event.changed:,} failed, {event.seconds:.1f} s"
        case Step.ERROR:
            return f"{event.node}: {event.kind}: {event.words}"
        case _:
            return None


def is_compliant(findings: Iterable[Findings]) -> bool:
    """Return whether all machines were checked completely and violate no rule."""
    return not any(is_partial(machine) or machine.of(RuleOutcome.FAILED) for machine in findings)


def is_partial(findings: Findings) -> bool:
    """Return whether a machine was not reached, or some of its rules could not be checked."""
    return bool(findings.unreached or findings.of(RuleOutcome.UNKNOWN))


def _row(machine: Findings) -> tuple[str, ...]:
    counts = (f"{len(machine.of(outcome)):,}" for outcome in RuleOutcome)
    return machine.node, *counts, f"{machine.apart:,}", f"{machine.seconds:.1f} s"


def _rules(shown: Sequence[Verdict]) -> Iterator[str]:
    # The outcome comes first: a narrow terminal cuts the end of the line.
    heads = aligned((verdict.outcome.value, verdict.role, verdict.rule) for verdict in shown)
    for head, verdict in zip(heads, shown, strict=True):
        yield f"{INDENT}{head}"
        if verdict.outcome is not RuleOutcome.PASSED:
            yield from wrapped(verdict.description, INDENT * 2)
            words = (part for line in verdict.words.splitlines() for part in _wrapped_output(line))
            yield from islice(words, _MAX_LINES)


def _wrapped_output(line: str) -> Iterator[str]:
    """Yield a line of a check's output, wrapped to the terminal. Longer words are cut."""
    depth = INDENT * 3 + " " * (len(line) - len(line.lstrip()))
    for part in wrapped(line, depth):
        yield part if len(part) <= WIDTH else f"{part[: WIDTH - 3]}..."


def _tally(findings: Sequence[Findings]) -> str:
    reached = [machine for machine in findings if not machine.unreached]
    rules = sum(len(machine.verdicts) for machine in reached)
    failures = sum(len(machine.of(RuleOutcome.FAILED)) for machine in reached)
    unknown = sum(len(machine.of(RuleOutcome.UNKNOWN)) for machine in reached)
    unreached = len(findings) - len(reached)
    failure_text = counted(failures, "failed rule") if failures else "no failed rule"
    partial = f"; {counted(unknown, 'rule')} unknown" if unknown else ""
    missing = f"; {counted(unreached, 'machine')} not reached" if unreached else ""
    return f"{failure_text} of {counted(rules, 'rule')} on {counted(len(reached), 'machine')}{partial}{missing}"


def _next(findings: Sequence[Findings]) -> Iterator[str]:
    failing = [machine.node for machine in findings if machine.of(RuleOutcome.FAILED)]
    if failing:
        yield f"next: `bedplate node apply {' '.join(failing)}` restores the declared state"
    unknown = [machine.node for machine in findings if machine.of(RuleOutcome.UNKNOWN)]
    if unknown:
        yield f"unknown on {', '.join(unknown)}: correct the cause, such as a failed file server, then audit again"


_TEMPLATE = Path(__file__).with_name("compliance_page.html.j2")


def compliance_page(fleet: str, day: str, findings: Iterable[Findings]) -> str:
    """Return the HTML page; `day` is the date of the audit."""
    nodes = tuple(findings)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return (
        template.render(fleet=fleet, day=day, nodes=nodes, outcomes=tuple(RuleOutcome), ok=is_compliant(nodes)) + "\n"
    )


# Characters that XML 1.0 does not allow.
_INVALID_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {RuleOutcome.FAILED: "failure", RuleOutcome.SKIPPED: "skipped", RuleOutcome.UNKNOWN: "error"}
_REACHED = "is-reached"


def junit_report(findings: Iterable[Findings]) -> bytes:
    """Return the JUnit XML. A machine that was not reached, and a rule that could not be checked, is an error."""
    root = Element("testsuites", name="bedplate node audit")
    for machine in findings:
        _add_suite(root, machine)
    return xml_file(root)


def xml_file(root: Element) -> bytes:
    """Return the text of an XML file."""
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add_suite(root: Element, machine: Findings) -> None:
    lost = bool(machine.unreached)
    failures, skipped, errors = (len(machine.of(outcome)) for outcome in _ELEMENTS)
    counts = {"tests": len(machine.verdicts) + lost, "failures": failures, "errors": errors + lost, "skipped": skipped}
    suite = SubElement(root, "testsuite", {"name": machine.node, **{key: str(count) for key, count in counts.items()}})
    for verdict in machine.verdicts:
        _add_case(suite, machine.node, verdict)
    if machine.unreached:
        case = SubElement(suite, "testcase", classname=machine.node, name=_REACHED, time="0")
        SubElement(case, "error", message=xml_text(machine.unreached))


def _add_case(suite: Element, node: str, verdict: Verdict) -> None:
    place = f"{node}.{verdict.role}"
    case = SubElement(suite, "testcase", classname=place, name=verdict.rule, time=f"{verdict.seconds:.3f}")
    name = _ELEMENTS.get(verdict.outcome)
    if name:
        SubElement(case, name, message=xml_text(verdict.description)).text = xml_text(verdict.words)


def xml_text(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return _INVALID_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
