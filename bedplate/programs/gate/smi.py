"""What nvidia-smi says about GPUs: each element of its document is judged by a rule, or ignored for a reason.

smi.txt has the rules. An element without one is new: what sounds like a fault in it is reported as unknown.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..program import ProgramError
from .machine import Machine
from .verdict import Action, Cause, Finding, by_action, hardware, unfinished, unknown

_NONE = {"", "N/A", "Not Supported", "Requested functionality has been deprecated"}
_LOST = {"GPU is lost", "GPU requires reset", "GPU is inaccessible"}
_NO_ANSWER = {"Unknown Error", "ERR!", "Insufficient Permissions"}
# Names and values of elements without a rule.
_FAULT = re.compile("pending|fail|error|unhealthy|degrad|lost|retire|repair|slowdown|recover|reset|exceeded|incorrect")
_FINE = {"No", "False", "None", "0", "Not Active", "Disabled", "Healthy", "Success"}
# The manual of nvidia-smi, "Return value".
_STATUSES: Mapping[int | None, tuple[str, str, Action, Cause]] = {
    8: ("gpu-power", "a GPU's external power cables are not attached", Action.REPLACE, Cause.HARDWARE),
    10: ("driver", "the kernel detected an interrupt issue with a GPU", Action.REBOOT, Cause.UNKNOWN),
    # The GPU works, and can no longer note its errors.
    14: ("gpu-inforom", "the infoROM of a GPU is corrupted", Action.MONITOR, Cause.UNKNOWN),
    15: ("gpu-lost", "a GPU has fallen off the bus", Action.REBOOT, Cause.HARDWARE),
}
_REFUSALS = (
    (re.compile("fallen off the bus|GPU is lost|Unable to determine the device handle"), Action.REBOOT, Cause.HARDWARE),
    (re.compile("version mismatch|communicate with the NVIDIA driver"), Action.REBOOT, Cause.SOFTWARE),
    (re.compile("NVML.*(not be found|Not Found)|libnvidia-ml"), Action.REPAIR, Cause.SOFTWARE),
)
_NO_DEVICES = "No devices were found"


@dataclass(frozen=True)
class Rule:
    """A row of smi.txt; `actions` are by value, `*` for every other one."""

    name: str
    check: str = ""
    good: frozenset[str] = frozenset()
    actions: Mapping[str, str] | None = None


@cache
def read_rules() -> Mapping[str, Rule]:
    """Return the rules by path."""
    text = Path(__file__).with_name("smi.txt").read_text(encoding="utf-8")
    return {path: _rule(name, *cells) for path, name, *cells in _rows(text)}


def _rows(text: str) -> Iterator[list[str]]:
    yield from (row.split("\t") for row in text.splitlines() if row and not row.startswith("#"))


def _rule(name: str, check: str, *cells: str) -> Rule:
    if name != "state":
        return Rule(name, check, actions={"*": cells[0]} if cells else None)
    good, bad = cells
    pairs = (entry.partition("=") for entry in bad.split(";") if entry)
    return Rule(
        name,
        check,
        frozenset(good.split("|")),
        {value: action for action, _, text in pairs for value in text.split("|")},
    )


def read_leaves(element: ET.Element, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each element without children."""
    for child in element:
        below = f"{path}{child.tag}"
        if len(child):
            yield from read_leaves(child, f"{below}/")
        else:
            yield below, (child.text or "").strip()


def rule_of(path: str) -> Rule | None:
    """Return the rule of a path; None if the table does not know it."""
    rules, parts = read_rules(), path.split("/")
    folders = ("/".join((*parts[:depth], "*")) for depth in range(len(parts), 0, -1))
    return rules.get(path) or next((rules[folder] for folder in folders if folder in rules), None)


def id_of(gpu: ET.Element) -> str:
    """Return the name of a GPU in findings."""
    return f"GPU {gpu.get('id', '?')}"


def check_states(gpu: ET.Element) -> Iterator[Finding]:
    """Yield a finding for each element of a GPU that is not as on a healthy one."""
    leaves = [(path, text.strip("[]")) for path, text in read_leaves(gpu)]
    lost = {text for _, text in leaves} & _LOST
    if lost:
        yield hardware("gpu-lost", f"{id_of(gpu)}: {', '.join(sorted(lost))}", Action.REBOOT)
    for path, text in leaves:
        rule = rule_of(path)
        if text not in _NONE | _LOST and (finding := _judge(gpu, path, text, rule)):
            yield finding


def _judge(gpu: ET.Element, path: str, text: str, rule: Rule | None) -> Finding | None:
    """Return the finding about an element; None if it is as it should be."""
    name = " ".join(path.split("/")[-2:]).replace("_", " ")
    words = f"{id_of(gpu)}: {name}: {text[:80]}"
    if rule is None:
        return unknown("gpu-new", words) if _FAULT.search(path.lower()) and text not in _FINE else None
    if rule.name in {"code", "ignored"} or text in rule.good:
        return None
    if text in _NO_ANSWER:
        return unknown(rule.check, words)
    actions = rule.actions or {}
    action = actions.get(text) or actions.get("*", "unknown")
    if rule.name == "count" and text == "0":
        return None
    if rule.name == "count" and not text.isdecimal():
        return unknown(rule.check, words)
    if rule.name == "pending":
        current = (gpu.findtext(path.replace("pending_", "current_")) or "").strip()
        # Somebody has made the change, which waits for a reset.
        change = Finding(rule.check, f"{words}, now {current}", Action(action), Cause.SOFTWARE)
        return None if current == text else change
    return by_action(rule.check, words, action)


def read_document(machine: Machine) -> tuple[ET.Element | None, Iterable[Finding]]:
    """Return the document of nvidia-smi, None without one, and what its exit status says."""
    try:
        result = machine.run("nvidia-smi", "-q", "-x", attempts=2)
    except ProgramError as error:
        return None, [unfinished("driver", error)]
    told = [Finding(*_STATUSES[result.status])] if result.status in _STATUSES else []
    try:
        document = ET.fromstring(result.text)  # noqa: S314  the driver's own
    except ET.ParseError as error:
        text = result.error or f"nvidia-smi prints no document: {error}"
    else:
        # A corrupted infoROM changes the exit status, and not the document.
        return document, told or ([unknown("driver", result.error)] if result.error else [])
    if told:
        return None, told
    if _NO_DEVICES in text and not result.limit:
        return ET.Element("nvidia_smi_log"), [unknown("driver", text)]
    action, cause = next(
        ((action, cause) for words, action, cause in _REFUSALS if words.search(text)), (Action.REBOOT, Cause.UNKNOWN)
    )
    return None, [Finding("driver", text, action, cause)]
