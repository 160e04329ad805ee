"""What the compliance checks found as a JUnit file, which every CI can show: a suite a machine, a case a rule."""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bedplate.nodes.verdict import Findings, Outcome, Verdict

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
