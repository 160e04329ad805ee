"""Whether a program works: the processor time of all that it has started, its output, and its leased GPUs."""

import os
import time
from contextlib import suppress
from pathlib import Path

from ..program import ProgramError, output
from .ranks import processes

# The part of one processor below which a program does not work, and seconds that its helpers may use in any case.
_LEAST, _HELPERS = 0.01, 0.5
# Seconds for an answer of nvidia-smi.
_SMI_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Witness:
    """What this process has seen of its program, whose output is below `logs` by attempt and rank."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._since, self._seconds, self._written = time.monotonic(), 0.0, 0
        self._of_smi = 0.0

    def idle(self) -> float:
        """Return for how many seconds the program has neither used a processor or GPU nor printed."""
        now, seconds, written = time.monotonic(), used_seconds() - self._of_smi, self._last_written()
        is_busy = seconds - self._seconds > _LEAST * (now - self._since) + _HELPERS
        if is_busy or written != self._written or self._uses_gpus():
            self._since, self._seconds, self._written = now, seconds, written
        return now - self._since

    def _uses_gpus(self) -> bool:
        """Return whether one of the leased GPUs works; an answer of nvidia-smi that is not clear counts as work."""
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu.startswith("GPU-")]
        if not gpus:
            return False
        before = os.times()
        query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
        try:
            shares = output("nvidia-smi", f"--id={','.join(gpus)}", *query, seconds=_SMI_SECONDS).split()
        except ProgramError:
            return True
        finally:
            # nvidia-smi is a child, too: without persistence mode it needs more time than a program that waits.
            after = os.times()
            self._of_smi += sum(after[2:4]) - sum(before[2:4])
        return shares != ["0"] * len(gpus)

    def _last_written(self) -> int:
        newest = 0
        # A session notes signs of work itself.
        for path in (*self._logs.glob("*/*/*"), self._logs.parent / "session/active"):
            # The hub may have it, and the spool may remove it.
            with suppress(OSError):
                newest = max(newest, path.stat().st_mtime_ns)
        return newest


def used_seconds(root: int = 0) -> float:
    """Return the processor seconds of all descendants of this process, or of another one and its own, also of ended."""
    own = os.times()
    seconds, parents = 0.0 if root else own.children_user + own.children_system, {root or os.getpid()}
    rows = sorted(processes(), key=lambda row: row[3])
    for pid, parent, ticks, _ in rows:
        # A process begins after its parent, but for those that this process has inherited.
        if parent in parents or pid == root:
            parents.add(pid)
            seconds += ticks / _TICKS
    return seconds
