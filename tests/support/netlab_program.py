"""A program that runs in a laboratory, known by its number, and the log it writes."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

_GRACE_SECONDS = 10
# By how much slower a processor is that is computed: who waits there waits longer, and looks and sends less often.
SLOWNESS = float(os.environ.get("LAB_SLOWNESS", "1"))


@dataclass(frozen=True)
class LabProgram:
    """A program that somebody started, and that is ended by its number alone."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """Its number."""
        return self.popen.pid

    @property
    def runs(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    @property
    def told(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it with whatever it started in its own group, and wait until it has gone."""
        if not self.runs:
            return
        if os.getpgid(self.pid) == self.pid:
            os.killpg(self.pid, how)
        else:
            self.popen.send_signal(how)
        try:
            self.popen.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(_GRACE_SECONDS)


def until(happens: Callable[[], bool], seconds: float, what: str, every: float = 0.05) -> float:
    """Wait until something happens and return the seconds it took; AssertionError, saying what, when it never does."""
    start, limit = monotonic(), seconds * SLOWNESS
    while monotonic() - start < limit:
        if happens():
            return monotonic() - start
        sleep(every * SLOWNESS)
    raise AssertionError(f"{what}: not within {limit:g} s")
