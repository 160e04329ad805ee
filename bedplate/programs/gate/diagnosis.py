"""DCGM's diagnoses, and the burn-in of GPUs: both use the GPUs for minutes, so nobody else may use them.

Sources: NVIDIA DCGM, "DCGM Diagnostics" and "Diagnostic Errors", read 2026-11; README of nccl-tests.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..program import MissingProgramError, ProgramError, Result
from .gpus import is_switched
from .machine import Expected, Machine
from .smi import read_document
from .verdict import Action, Cause, Finding, hardware, software, unfinished, unknown

_CHECK = "dcgm"
_TESTED, _FAILED = {"pass", "warn", "fail"}, "fail"
# Categories of tests, and of DCGM's errors by number: thresholds of speed are no fault of software.
_HARDWARE, _SOFTWARE = {"hardware", "integration", "stress"}, {"deployment"}
_HARDWARE_ERRORS, _SOFTWARE_ERRORS = {1, 2, *range(9, 16)}, {*range(3, 9)}
# The host engine listens some seconds after its unit has started.
_NO_ENGINE = re.compile("host engine|establish a connection", re.IGNORECASE)
_ATTEMPTS = 6


def diagnose(machine: Machine, level: int, missing: Action = Action.REPAIR) -> Iterator[Finding]:
    """Yield a finding for each failed test, or one if all passed; `missing` is the action if DCGM is not installed.

    Only a failed test of hardware is a fault of it. A diagnosis that cannot run fails the first gate of a boot, which
    is repeated on a new machine; then the machine works without it.
    """
    try:
        result = _run_diagnosis(machine, level)
    except ProgramError as error:
        finding = unfinished(_CHECK, error)
        yield replace(finding, action=missing) if finding.cause is Cause.SOFTWARE else finding
        return
    tests = list(_tests(result.text))
    ran = [name for name, statuses, _ in tests if _TESTED & statuses]
    failed = [(name, cause) for name, statuses, cause in tests if _FAILED in statuses]
    for name, cause in failed:
        action = {Cause.HARDWARE: Action.REPLACE, Cause.SOFTWARE: Action.REPAIR}.get(cause, _undecided(machine))
        yield Finding(_CHECK, f"{name} failed", action, cause)
    if not ran:
        yield unknown(_CHECK, result.error or f"no test of level {level} ran", _undecided(machine))
    elif not failed:
        yield Finding(_CHECK, f"{len(ran)} tests of level {level} passed")


def _undecided(machine: Machine) -> Action:
    """Return the action for a diagnosis that says nothing: a repair, but not twice."""
    before = [entry for entry in machine.last.get("findings", ()) if entry["check"] == _CHECK]
    return Action.MONITOR if any(entry["cause"] == Cause.UNKNOWN for entry in before) else Action.REPAIR


def _run_diagnosis(machine: Machine, level: int) -> Result:
    """Run DCGM, and wait for its host engine. Raises ProgramError if it cannot be started."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(machine.timeout / 3)
        result = machine.run("dcgmi", "diag", "--run", str(level), "--json")
        if not (result.error and _NO_ENGINE.search(result.error)):
            break
    return result


def _tests(text: str) -> Iterator[tuple[str, set[str], Cause]]:
    """Yield the name of each test in a report, the statuses of its results, and what a failure of it is a fault of.

    DCGM prints a report also if a test fails, and may print words before it.
    """
    try:
        report = json.loads(text[max(text.find("{"), 0) :])
        root = report.get("DCGM Diagnostic") or report.get("DCGM GPU Diagnostic") or {}
        for category in root.get("test_categories", ()):
            for test in category.get("tests", ()):
                results = [*test.get("results", ()), test.get("test_summary") or {}]
                statuses = {str(result.get("status", "")).lower() for result in results}
                yield str(test.get("name")), statuses, _cause(str(category.get("category", "")), results)
    except (ValueError, AttributeError, TypeError):
        return


def _cause(category: str, results: Iterable[Mapping[str, Any]]) -> Cause:
    """Return what is broken: by the errors of the failed results, else by the category of the test."""
    failed = [result for result in results if str(result.get("status", "")).lower() == _FAILED]
    warnings = [entry for result in failed for entry in result.get("warnings") or () if isinstance(entry, dict)]
    errors = {entry.get("error_category") for entry in warnings}
    if errors & _HARDWARE_ERRORS:
        return Cause.HARDWARE
    if errors & _SOFTWARE_ERRORS or category.lower() in _SOFTWARE:
        return Cause.SOFTWARE
    return Cause.HARDWARE if category.lower() in _HARDWARE else Cause.UNKNOWN


# Level 3 takes about 15 minutes; slow machines get four times as long. Source: DCGM's reference of `dcgmi diag`.
_TIMEOUT = 360.0
# One large message: small ones measure latency. Source: README of nccl-tests.
_ALL_REDUCE = ("all_reduce_perf", "-b", "8G", "-e", "8G", "-g")
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth *: *([0-9.]+)", re.MULTILINE)


def burn_in(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings of a machine; if it has no GPUs or they are in use, one finding that says so."""
    if expected.gpus is None:
        yield software("gpus", "this machine has no GPUs")
        return
    try:
        users = machine.output("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").split()
    except ProgramError as error:
        yield unfinished("driver", error)
        return
    if users:
        yield software("in-use", f"processes on the GPUs: {', '.join(sorted(set(users)))}")
        return
    patient = replace(machine, timeout=_TIMEOUT, last={})
    yield from diagnose(patient, 3)
    document, _ = read_document(machine)
    # The pass mark is that of GPUs behind NVSwitch.
    has_mark = document is None or is_switched(expected.gpus, document)
    yield _all_reduce(patient, expected.gpus.count, expected.gpus.bandwidth if has_mark else 0)


def _all_reduce(machine: Machine, count: int, least: int) -> Finding:
    """Compare the bandwidth of an all-reduce with the minimum, 0 for none."""
    try:
        match = _BANDWIDTH.search(machine.output(*_ALL_REDUCE, str(count)))
    except MissingProgramError as error:
        return Finding("all-reduce", f"not measured: {error}", Action.MONITOR)
    except ProgramError as error:
        return unfinished("all-reduce", error)
    if match is None:
        return unknown("all-reduce", "all_reduce_perf printed no bandwidth", Action.REPAIR)
    text = f"{match[1]} GB/s over {count} GPUs"
    if not least:
        return Finding("all-reduce", f"{text}; no pass mark for this GPU", Action.MONITOR)
    text += f", at least {least} required"
    return hardware("all-reduce", text) if float(match[1]) < least else Finding("all-reduce", text)
