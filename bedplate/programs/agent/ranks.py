"""The processes of a program, one for each rank, until all of them and all that they have started have ended."""

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

from .spool import Spool

_NOT_STARTED, _SIGNALLED, _SUBREAPER, _PART = 127, 128, 36, 1 << 16
# Seconds: between two looks, for the other ranks after a failure, and until a process counts as one that cannot end.
_LOOK, _AFTER_FAILURE, _LONGEST_KILL = 0.05, 30.0, 60.0


class Ranks:
    """The ranks of a program: exit code and cause of each that has ended. The first cause is that of all.

    `asked` takes requests to stop, a cause and seconds, from signals and threads.
    """

    def __init__(self, stop_file: Path, seconds: float, grace: float) -> None:
        self.ended: dict[int, tuple[int, str]] = {}
        self.code, self.cause, self.is_stopped = 0, "", False
        self.asked: list[tuple[str, float]] = []
        self._stop_file, self._grace, self._over = stop_file, grace, time.monotonic() + seconds
        self._left, self._pumps, self._kills_at = dict[int, int](), list[Thread](), float("inf")
        self._killed_for_memory = _killed_for_memory()
        # What a process leaves behind becomes a child of this one.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def start(self, rank: int, command: Sequence[str], environment: Mapping[str, str], spool: Spool) -> None:
        """Start a rank in the folder PWD of its environment. It shares the leases of GPUs, if this process has any."""
        leases = [int(handle) for handle in os.environ.get("BEDPLATE_LEASE_FDS", "").split(",") if handle]
        try:
            process = subprocess.Popen(  # noqa: S603  the person's own command
                command,
                cwd=environment["PWD"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=leases,
            )
        except (OSError, ValueError) as error:
            self._note(rank, _NOT_STARTED, f"cannot start {command[0]}: {getattr(error, 'strerror', error)}")
            return
        process.returncode = 0  # it is waited for here
        self._left[process.pid] = rank
        self._pumps.append(Thread(target=_pump, args=(process.stdout, spool), daemon=True))
        self._pumps[-1].start()

    def wait(self) -> None:
        """Wait for the end, and stop the ranks when that is asked for, when time is over, or when one has failed."""
        now = time.monotonic()
        while now < self._kills_at + _LONGEST_KILL:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if process in self._left:
                self._note(self._left.pop(process), os.waitstatus_to_exitcode(status))
            if now > self._over:
                self.asked, self._over = [*self.asked, ("stopped: its time was over", self._grace)], float("inf")
            while self.asked:
                self._stop(*self.asked.pop(0), is_asked=True)
            if not self._left:
                self._kills_at = min(self._kills_at, now)
            if now >= self._kills_at:
                _signal(_children(), signal.SIGKILL)
            if not process:
                time.sleep(_LOOK)
            now = time.monotonic()
        code, cause = _SIGNALLED + signal.SIGKILL, "did not end: it waits for a device or a file server"
        self.ended.update({rank: (code, f"rank {rank} {cause}") for rank in self._left.values()})
        for pump in self._pumps:
            pump.join(_LONGEST_KILL)

    def _note(self, rank: int, code: int, cause: str = "") -> None:
        """Keep the end of a rank, and stop the others if it has failed."""
        name = f"rank {rank}" if self._left or self.ended else "the program"
        cause = cause or f"{name} ended with exit code {code}"
        if code < 0:
            cause, code = f"{name} was killed by signal {-code}, {signal.strsignal(-code)}", _SIGNALLED - code
        if code and _killed_for_memory() > self._killed_for_memory:
            cause = f"{name} was out of memory: the kernel has killed a process"
        self.ended[rank] = code, cause
        if code and not self.cause:
            self.code = code
            self._stop(cause, min(self._grace, _AFTER_FAILURE))
        elif not self._left:
            self.cause = self.cause or cause

    def _stop(self, cause: str, grace: float, *, is_asked: bool = False) -> None:
        """Send SIGTERM to the ranks, and not to what they have started; later all are killed."""
        is_first, end = self._kills_at == float("inf"), time.monotonic() + grace
        self.is_stopped, self.cause = self.is_stopped or (is_asked and not self.cause), self.cause or cause
        self._kills_at = min(self._kills_at, end)
        if is_first:
            with suppress(OSError):
                self._stop_file.write_text(f"{time.time() + grace:.0f}\n", encoding="ascii")
            _signal(self._left, signal.SIGTERM)


def _pump(pipe: IO[bytes], spool: Spool) -> None:
    """Store the output of a rank until nobody can write to it any more."""
    data = b""
    with pipe:
        while not select.select([pipe], [], [], 1.0)[0] or (data := os.read(pipe.fileno(), _PART)):
            spool.write(data)
            data = b""
    spool.flush()


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if path.read_text(errors="replace").rpartition(")")[2].split()[1] == str(os.getpid()):
                yield int(path.parent.name)


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        # A program may run as another user.
        with suppress(PermissionError, ProcessLookupError):
            os.kill(process, number)


def own_cgroup() -> Path:
    """Return the control group of this unit or container, in version 2."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    return Path(f"/sys/fs/cgroup{next((line[3:] for line in lines if line.startswith('0::')), '')}")


def _killed_for_memory() -> int:
    """Return how many processes of this unit or container the kernel has killed for memory; 0 if it does not say."""
    with suppress(OSError):
        events = (own_cgroup() / "memory.events").read_text(encoding="ascii").split()
        return int(dict(zip(events[::2], events[1::2])).get("oom_kill", 0))
    return 0
