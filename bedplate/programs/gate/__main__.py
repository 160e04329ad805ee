"""`bedplate-gate [--json]`: run all checks, write the verdict, and exit with 0 if the machine may work, else 3.

`--burn-in` runs the long tests of the GPUs instead, and writes nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..program import write_text
from .hardware import burn_in, check_gpus, check_system, diagnose
from .machine import Expected, Machine, read_expected
from .verdict import Action, Finding, Verdict

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
    yield from check_all(machine, expected)
    if expected.gpus:
        # A fleet whose catalog has not verified NVIDIA's repository has no DCGM.
        yield from diagnose(machine, 1, missing=Action.MONITOR)


def has_passed(machine: Machine, verdict: Path) -> bool:
    """Return whether the last verdict is of this boot, and good."""
    try:
        last = json.loads(verdict.read_text(encoding="utf-8"))
        return bool(last["ok"] and last["boot"] == machine.read(_BOOT))
    except (OSError, ValueError, KeyError):
        return False


def judge(machine: Machine, expected: Expected, checks: Checks = check_all) -> Verdict:
    """Return the verdict on a machine."""
    findings = tuple(checks(machine, expected))
    return Verdict(int(time.time()), machine.read(_BOOT), findings)


def read_verdict(machine: Machine, file: Path, checks: Checks = check_all) -> Verdict:
    """Return the verdict; a plan that does not fit the machine is a failed one."""
    # On EC2 the name of the product is the instance type. Source: EC2 user guide, "Identify EC2 instances".
    product = machine.read("/sys/class/dmi/id/product_name")
    try:
        return judge(machine, read_expected(file, product), checks)
    except KeyError:
        text = f"{product or 'this machine'} is no type of its group"
        return Verdict(int(time.time()), "", (Finding("type", text, Action.REPLACE),))
    except (OSError, ValueError, TypeError) as error:
        return Verdict(int(time.time()), "", (Finding("plan", f"{file}: {error}", Action.REPAIR),))


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(prog="bedplate-gate", description="Check that this machine works as planned.")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--burn-in", action="store_true", help="run the long tests of the GPUs instead")
    arguments = parser.parse_args()
    machine = Machine()
    checks = check_all if has_passed(machine, VERDICT) else check_new_boot
    verdict = read_verdict(machine, EXPECTED, burn_in if arguments.burn_in else checks)
    text = json.dumps(verdict.document(), indent=1)
    if arguments.burn_in:
        sys.stdout.write(f"{text}\n" if arguments.json else "".join(f"{line}\n" for line in verdict.report()))
        return 0 if verdict.ok else _FAILED
    write_text(VERDICT, f"{text}\n")
    if METRICS.parent.is_dir():
        write_text(METRICS, verdict.metrics())
    sys.stdout.write(f"{text}\n" if arguments.json else "".join(f"{line}\n" for line in verdict.lines()))
    return 0 if verdict.ok else _FAILED


if __name__ == "__main__":
    sys.exit(main())
