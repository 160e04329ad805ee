"""`bedplate-gate [--json]`: run all checks, write the verdict, and exit with 0 if the machine may work, else 3.

`--burn-in` runs the long tests of the GPUs instead, and writes nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..program import write_text
from .diagnosis import burn_in, diagnose
from .gpus import check_gpus
from .hardware import check_system
from .machine import Expected, Machine, read_expected
from .verdict import Action, Finding, Verdict, software, unknown

Checks = Callable[[Machine, Expected], Iterator[Finding]]

EXPECTED = Path("/etc/bedplate/gate.json")
VERDICT = Path("/var/lib/bedplate/gate.json")
METRICS = Path("/var/lib/prometheus/node-exporter/bedplate-gate.prom")
_BOOT = "/proc/sys/kernel/random/boot_id"
_FAILED = 3


def check_all(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings of all checks of the gate."""
    yield from check_system(machine, expected)
    yield from check_gpus(machine, expected)


def check_new_boot(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings of the first gate of a boot: DCGM runs one diagnosis at a time, so later gates run none."""
    has_mig = False
    for finding in check_all(machine, expected):
        has_mig |= finding.check == "gpu-mig"
        yield finding
    if has_mig:
        yield Finding("dcgm", "not run: GPUs with MIG have no diagnosis", Action.MONITOR)
    elif expected.gpus:
        # A fleet whose catalog has not verified NVIDIA's repository has no DCGM.
        yield from diagnose(machine, 1, missing=Action.MONITOR)


def read_last(machine: Machine, file: Path) -> Mapping[str, Any]:
    """Return the last verdict, if it is of this boot; else nothing."""
    try:
        last: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        is_complete = all({"check", "text", "cause"} <= entry.keys() for entry in last["findings"])
        return last if is_complete and last["boot"] == machine.read(_BOOT) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def judge(machine: Machine, expected: Expected, checks: Checks = check_all) -> Verdict:
    """Return the verdict on a machine."""
    findings = tuple(_completed(checks(machine, expected)))
    return Verdict(int(time.time()), machine.read(_BOOT), findings)


def _completed(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings; an error of a check is a finding about the gate, not about the machine."""
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001  any defect of a check
        yield unknown("gate", f"{type(error).__name__}: {error}", Action.REPAIR)


def read_verdict(machine: Machine, file: Path, checks: Checks = check_all) -> Verdict:
    """Return the verdict; a plan that does not fit the machine is a failed one."""
    # On EC2 the name of the product is the instance type. Source: EC2 user guide, "Identify EC2 instances".
    product = machine.read("/sys/class/dmi/id/product_name")
    try:
        return judge(machine, read_expected(file, product), checks)
    except KeyError:
        finding = software("type", f"{product or 'this machine'} is no type of its group")
    except (OSError, ValueError, TypeError) as error:
        finding = software("plan", f"{file}: {error}")
    return Verdict(int(time.time()), "", (finding,))


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(prog="bedplate-gate", description="Check that this machine works as planned.")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--burn-in", action="store_true", help="run the long tests of the GPUs instead")
    arguments = parser.parse_args()
    machine = Machine()
    machine = replace(machine, last=read_last(machine, VERDICT))
    checks = check_all if machine.last.get("ok") is True else check_new_boot
    verdict = read_verdict(machine, EXPECTED, burn_in if arguments.burn_in else checks)
    rows = verdict.report() if arguments.burn_in else verdict.lines()
    text = json.dumps(verdict.document(), indent=1)
    sys.stdout.write(f"{text}\n" if arguments.json else "".join(f"{row}\n" for row in rows))
    try:
        if not arguments.burn_in:
            write_text(VERDICT, f"{text}\n")
            if METRICS.parent.is_dir():
                write_text(METRICS, verdict.metrics())
    except OSError as error:
        sys.stderr.write(f"error: cannot write the verdict: {error}\n")
    return 0 if verdict.ok else _FAILED


if __name__ == "__main__":
    sys.exit(main())
