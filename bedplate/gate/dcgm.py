"""DCGM's diagnostics: level 1 tests the software in seconds, level 3 the hardware in a quarter of an hour.

Source: NVIDIA DCGM, "DCGM Diagnostics", read 2026-11.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .machine import FailedProgramError, Machine, MissingProgramError
from .verdict import Action, Finding

_FAILED = re.compile("fail", re.IGNORECASE)


def diagnose(machine: Machine, level: int, missing: Action = Action.REPAIR) -> Iterator[Finding]:
    """Yield a finding for each failed test, or one for all; `missing` is the action if DCGM is not installed."""
    try:
        report = json.loads(machine.output("dcgmi", "diag", "--run", str(level), "--json"))
    except MissingProgramError as error:
        yield Finding("dcgm", str(error), missing)
        return
    except (FailedProgramError, ValueError) as error:
        # DCGM exits with an error if a test fails.
        yield Finding("dcgm", str(error), Action.REPLACE)
        return
    failed = [name for name, is_failed in _tests(report) if is_failed]
    yield from (Finding("dcgm", f"{name} failed", Action.REPLACE) for name in failed)
    if not failed:
        yield Finding("dcgm", f"{len(list(_tests(report)))} tests of level {level} passed")


def _tests(report: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each test, and whether a result of it is a failure."""
    root = report.get("DCGM Diagnostic") or report.get("DCGM GPU Diagnostic") or {}
    for category in root.get("test_categories", ()):
        for test in category.get("tests", ()):
            results = [*test.get("results", ()), test.get("test_summary") or {}]
            yield str(test.get("name")), any(_FAILED.search(str(result.get("status", ""))) for result in results)
