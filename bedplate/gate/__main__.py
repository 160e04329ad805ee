"""`bedplate-gate [--json]`: run all checks, write the verdict, and exit with 0 if the machine may work, else 3."""

import argparse
import json
import sys
import time
from pathlib import Path

from .expected import Expected, read_expected
from .gpus import check_gpus
from .machine import Machine
from .system import check_system
from .verdict import Action, Finding, Verdict, write_file

EXPECTED = Path("/etc/bedplate/gate.json")
VERDICT = Path("/var/lib/bedplate/gate.json")
METRICS = Path("/var/lib/prometheus/node-exporter/bedplate-gate.prom")
_FAILED = 3


def judge(machine: Machine, expected: Expected) -> Verdict:
    """Return the verdict on a machine."""
    findings = (*check_system(machine, expected), *check_gpus(machine, expected))
    return Verdict(int(time.time()), machine.read("/proc/sys/kernel/random/boot_id"), findings)


def read_verdict(machine: Machine, file: Path) -> Verdict:
    """Return the verdict; a plan that does not fit the machine is a failed one."""
    # On EC2 the name of the product is the instance type. Source: EC2 user guide, "Identify EC2 instances".
    product = machine.read("/sys/class/dmi/id/product_name")
    try:
        return judge(machine, read_expected(file, product))
    except KeyError:
        text = f"{product or 'this machine'} is no type of its group"
        return Verdict(int(time.time()), "", (Finding("type", text, Action.REPLACE),))
    except (OSError, ValueError, TypeError) as error:
        return Verdict(int(time.time()), "", (Finding("plan", f"{file}: {error}", Action.REPAIR),))


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(prog="bedplate-gate", description="Check that this machine works as planned.")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    arguments = parser.parse_args()
    verdict = read_verdict(Machine(), EXPECTED)
    text = json.dumps(verdict.document(), indent=1)
    write_file(VERDICT, f"{text}\n")
    if METRICS.parent.is_dir():
        write_file(METRICS, verdict.metrics())
    sys.stdout.write(f"{text}\n" if arguments.json else "".join(f"{line}\n" for line in verdict.lines()))
    return 0 if verdict.ok else _FAILED


if __name__ == "__main__":
    sys.exit(main())
