"""`bedplate rehearse examples/lab.yaml`, compared with a Python that only imports the SDK and moto.

The targets are 60 s and 600 MB on two cores.
"""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MAX_SECONDS, MAX_MB = 60.0, 600
REHEARSAL = ("-m", "bedplate", "rehearse", "examples/lab.yaml")
FLOOR = ("-c", "import boto3, moto.ec2.models, pulumi, pulumi_aws")


class Figures(NamedTuple):
    """Elapsed seconds, CPU seconds, and peak memory in MB."""

    seconds: float
    processor: float
    megabytes: float


def measured(*arguments: str) -> Figures:
    """Run Python to its end and return the figures."""
    started = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} exited with {os.waitstatus_to_exitcode(status)}")
    return Figures(perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    floor, rehearsal = measured(*FLOOR), measured(*REHEARSAL)
    for name, figures in (("floor: the imports", floor), ("rehearse examples/lab.yaml", rehearsal)):
        print(f"{name:<28} {figures.seconds:6.1f} s elapsed {figures.processor:6.1f} s CPU {figures.megabytes:6.0f} MB")
    times, memory = rehearsal.processor / floor.processor, rehearsal.megabytes / floor.megabytes
    print(f"{times:.1f} x the CPU time of the floor, {memory:.1f} x its memory")
    return 0 if rehearsal.seconds < MAX_SECONDS and rehearsal.megabytes < MAX_MB else 1


sys.exit(main())
