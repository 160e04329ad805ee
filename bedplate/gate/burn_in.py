"""The burn-in of a machine with GPUs: DCGM's long diagnostics and the bandwidth of an all-reduce over all its GPUs.

Both use the GPUs for minutes, so a machine with a program on a GPU is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from .dcgm import diagnose
from .expected import Expected
from .machine import FailedProgramError, Machine, MissingProgramError
from .verdict import Action, Finding

# Level 3 takes about 15 minutes. Source: DCGM's reference of `dcgmi diag`.
_SECONDS = 3600.0
# One large message: small ones measure latency. Source: README of nccl-tests.
_ALL_REDUCE = ("all_reduce_perf", "-b", "8G", "-e", "8G", "-g")
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth *: *([0-9.]+)", re.MULTILINE)


def burn_in(machine: Machine, expected: Expected) -> Iterator[Finding]:
    """Yield the findings of a machine; one that says so for a machine without GPUs, or whose GPUs are in use."""
    if expected.gpus is None:
        yield Finding("gpus", "this machine has no GPUs", Action.REPAIR)
        return
    try:
        users = machine.output("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").split()
    except (FailedProgramError, MissingProgramError) as error:
        yield Finding("driver", str(error), Action.REPAIR)
        return
    if users:
        yield Finding("in-use", f"processes on the GPUs: {', '.join(sorted(set(users)))}", Action.REPAIR)
        return
    patient = replace(machine, patience=_SECONDS)
    yield from diagnose(patient, 3)
    yield _all_reduce(patient, expected.gpus.count, expected.gpus.bandwidth)


def _all_reduce(machine: Machine, count: int, least: int) -> Finding:
    """Compare the bandwidth of an all-reduce with the pass mark, 0 for none."""
    try:
        match = _BANDWIDTH.search(machine.output(*_ALL_REDUCE, str(count)))
    except MissingProgramError as error:
        return Finding("all-reduce", f"not measured: {error}", Action.MONITOR)
    except FailedProgramError as error:
        return Finding("all-reduce", str(error), Action.REPLACE)
    if match is None:
        return Finding("all-reduce", "all_reduce_perf printed no bandwidth", Action.REPAIR)
    text = f"{match[1]} GB/s over {count} GPUs"
    if not least:
        return Finding("all-reduce", f"{text}; no pass mark for this GPU", Action.MONITOR)
    is_slow = float(match[1]) < least
    return Finding("all-reduce", f"{text}, at least {least} required", Action.REPLACE if is_slow else Action.NONE)
