"""`bedplate rehearse examples/lab.yaml` as an operator runs it, beside what no rehearsal can do without.

That floor is a Python that imports the SDK and moto and does nothing. The targets are 60 s and 600 MB on two cores.
"""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MOST_SECONDS, MOST_MB = 60.0, 600
REHEARSAL = ("-m", "bedplate", "rehearse", "examples/lab.yaml")
FLOOR = ("-c", "import boto3, moto.ec2.models, pulumi, pulumi_aws")


class Figures(NamedTuple):
    """Seconds by the clock, seconds of the processor, and the most memory in MB."""

    seconds: float
    processor: float
    megabytes: float


def measured(*arguments: str) -> Figures:
    """Run Python to its end and return what it took."""
    started = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return Figures(perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> int:
    """Print the figures; return 1 where a target is missed."""
    floor, found = measured(*FLOOR), measured(*REHEARSAL)
    for name, one in (("floor: the imports", floor), ("rehearse examples/lab.yaml", found)):
        print(
            f"{name:<28} {one.seconds:6.1f} s by the clock {one.processor:6.1f} s of processor {one.megabytes:6.0f} MB"
        )
    slower, larger = found.processor / floor.processor, found.megabytes / floor.megabytes
    print(f"{slower:.1f} x the floor's time, {larger:.1f} x its memory")
    return 0 if found.seconds < MOST_SECONDS and found.megabytes < MOST_MB else 1


sys.exit(main())
