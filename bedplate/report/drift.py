"""Reports of `refresh`: a table of what differs, JSON and JUnit XML."""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bedplate.deploy.run import Progress, Status, resource_name
from bedplate.deploy.state import Difference
from bedplate.report.columns import aligned, counted
from bedplate.report.compliance import xml_text

_LONGEST = 40


def drift_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield a row for each property that differs, and the number of differences."""
    rows = [
        (state.stack, resource_name(drift.urn), drift.key or "-", _cell(drift.recorded), _real(drift))
        for state in states
        for drift in state.differences
    ]
    if rows:
        yield from aligned([("stack", "resource", "key", "recorded value", "real value"), *rows])
    yield counted(len(rows), "difference") if rows else "no drift"


def _real(drift: Difference) -> str:
    return _cell(drift.real) if drift.key else "deleted" if drift.real is None else "changed"


def _cell(value: object) -> str:
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def drift_document(states: Iterable[Progress]) -> dict[str, Any]:
    """Return the document of `refresh --check --json`."""
    return {
        "stacks": {
            state.stack: {
                "checked": state.status is Status.DONE,
                "differences": [
                    {
                        "urn": drift.urn,
                        "resource": resource_name(drift.urn),
                        "key": drift.key,
                        "recorded": drift.recorded,
                        "real": drift.real,
                    }
                    for drift in state.differences
                ],
            }
            for state in states
        }
    }


def drift_junit(states: Iterable[Progress]) -> bytes:
    """Return the JUnit XML: a case for each stack. Drift is a failure, a check that failed is an error."""
    root = Element("testsuites", name="bedplate refresh --check")
    for state in states:
        is_drifted, is_checked = bool(state.differences), state.status is Status.DONE
        counts = {"tests": "1", "failures": str(int(is_drifted)), "errors": str(int(not is_checked)), "skipped": "0"}
        suite = SubElement(root, "testsuite", {"name": state.stack, **counts})
        case = SubElement(suite, "testcase", classname=state.stack, name="drift", time=f"{state.seconds:.3f}")
        if is_drifted:
            *rows, total = drift_lines([state])
            SubElement(case, "failure", message=total).text = xml_text("\n".join(rows))
        if not is_checked:
            SubElement(case, "error", message=xml_text("; ".join(cause.message for cause in state.causes)))
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
