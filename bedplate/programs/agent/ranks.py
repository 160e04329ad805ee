"""The processes of a program, one for each rank, until all of them and all that they have started have ended."""

import ctypes
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

from .restarts import kind_of
from .spool import Spool

_NOT_STARTED, _SIGNALLED, _SUBREAPER, _PART = 127, 128, 36, 1 << 16
AFTER_FAILURE = 30.0
"""Seconds for the other ranks after a failure."""
# Of the memory of a container, in thousandths: so much larger than the agent a program counts as (proc(5)).
_FIRST_VICTIM = 100
# Seconds: between two looks, and until a process counts as one that cannot end.
_LOOK, _LONGEST_KILL = 0.05, 60.0

# Xid of NVIDIA's driver; those that programs cause by wrong instructions and addresses, and their ends by signals.
_GPU_ERROR, _OF_PROGRAMS = re.compile(rb"Xid \([^)\n]*\): (\d+)[^\n]{0,120}"), frozenset({13, 31, 43, 45, 68, 69})
Tell = Callable[[str, float], None]


class Ranks:
    """The ranks of a program on this node: exit code, cause, kind, second and whether it was stopped, for each.

    `asked` takes requests to stop, a cause and seconds, from signals and threads. `tell` gets the first failure.
    Processes in `spared` may outlive the ranks; one that ends stops them.
    """

    def __init__(
        self, stop_file: Path, grace: float, asked: list[tuple[str, float]], tell: Tell, spared: set[int]
    ) -> None:
        self.ended: dict[int, tuple[int, str, str, float, bool]] = {}
        self.asked, self._spared = asked, spared
        self._stop_file, self._grace, self._tell, self._start = stop_file, grace, tell, time.monotonic()
        self._left, self._pumps, self._kills_at = dict[int, int](), list[Thread](), float("inf")
        self._spools, self._has_failed, self._stopped_at = dict[int, Spool](), False, float("inf")
        self._killed_for_memory = _killed_for_memory()
        adopt()

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process for memory since the start."""
        return _killed_for_memory() > self._killed_for_memory

    def start(self, rank: int, command: Sequence[str], environment: Mapping[str, str], spool: Spool) -> None:
        """Start a rank in the folder PWD of its environment. It shares the leases of GPUs, if this process has any."""
        self._spools[rank] = spool
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
        # Without memory, the kernel must kill what the program has started, not the agent, which may be larger.
        with suppress(OSError):
            score = int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii")) + _FIRST_VICTIM
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(min(score, 1_000)), encoding="ascii")
        self._left[process.pid] = rank
        self._pumps.append(Thread(target=_pump, args=(process.stdout, spool), daemon=True))
        self._pumps[-1].start()

    def wait(self, look: Callable[[], object], *, is_host: bool = False) -> None:
        """Wait for the end, and stop the ranks when that is asked for, or when one has failed. `look` may start others.

        A host has no end of its own: it waits for a request.
        """
        while (now := time.monotonic()) < self._kills_at + _LONGEST_KILL:
            process = self._reap()
            look()
            while self.asked:
                self._stop(self.asked.pop(0)[1])
            if not self._left and (not is_host or self._stopped_at < now):
                self._kills_at = min(self._kills_at, now)
            if now >= self._kills_at:
                left = {*children()} - self._spared
                if not process and not left:
                    break
                _signal(left, signal.SIGKILL)
            if not process:
                time.sleep(_LOOK)
        for rank in self._left.values():
            cause = f"rank {rank} did not end: it waits for a device or a file server"
            self._add(rank, _SIGNALLED + signal.SIGKILL, cause)
        for pump in self._pumps:
            pump.join(_LONGEST_KILL)
        is_out_of_memory = self.is_out_of_memory
        for rank, (code, cause, _, seconds, is_torn_down) in self.ended.items():
            # All output is there now.
            kind = kind_of(code, self._spools[rank].tail, is_out_of_memory=is_out_of_memory)
            self.ended[rank] = code, cause, kind, seconds, is_torn_down

    def _reap(self) -> int:
        """Return a process that has ended; 0 if none has."""
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if process in self._left:
            self._note(self._left.pop(process), os.waitstatus_to_exitcode(status))
        if process in self._spared:
            self._spared.discard(process)
            self._fail("the lease of its GPUs was ended")
        return process

    def _note(self, rank: int, code: int, cause: str = "") -> None:
        """Keep the end of a rank, and stop the others if it has failed."""
        name = f"rank {rank}" if self._left or self.ended else "the program"
        cause = cause or f"{name} ended with exit code {code}"
        if code < 0:
            cause, code = f"{name} was killed by signal {-code}, {signal.strsignal(-code)}", _SIGNALLED - code
        if code and self.is_out_of_memory:
            cause = f"{name} was out of memory: the kernel has killed a process"
        self._add(rank, code, cause)
        if code:
            self._fail(cause)

    def _add(self, rank: int, code: int, cause: str) -> None:
        now = time.monotonic()
        self.ended[rank] = (code, cause, "", now - self._start, now > self._stopped_at)

    def _fail(self, cause: str) -> None:
        if not self._has_failed and self._stopped_at == float("inf"):
            self._has_failed = True
            self._tell(cause, time.monotonic() - self._start)
            self._stop(min(self._grace, AFTER_FAILURE))

    def _stop(self, grace: float) -> None:
        """Send SIGTERM to the ranks, and not to what they have started; later all are killed."""
        is_first, now = self._stopped_at == float("inf"), time.monotonic()
        self._kills_at = min(self._kills_at, now + grace)
        if is_first:
            self._stopped_at = now
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


def adopt() -> None:
    """Let what a process leaves behind become a child of this one."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def children() -> Sequence[int]:
    """Return the processes whose parent is this one."""
    return [pid for pid, parent, _, _ in processes() if parent == os.getpid()]


def processes() -> Iterator[tuple[int, int, int, int]]:
    """Yield number, parent, ticks with those of ended children, and start of each process: proc(5)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text(errors="replace").rpartition(")")[2].split()
            yield int(path.parent.name), int(words[1]), sum(map(int, words[11:15])), int(words[19])


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        # A program may run as another user.
        with suppress(PermissionError, ProcessLookupError):
            os.kill(process, number)


class KernelLog:
    """The kernel's messages from now on, if this account may read them."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._handle = -1
        with suppress(OSError):
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._handle, 0, os.SEEK_END)

    def gpu_error(self) -> str:
        """Return the first error of a GPU that no program causes; empty without one. It ends the look."""
        text = b""
        with suppress(OSError):
            while data := os.read(self._handle, _PART):
                text += data
        if self._handle >= 0:
            os.close(self._handle)
        errors = (error for error in _GPU_ERROR.finditer(text) if int(error[1]) not in _OF_PROGRAMS)
        return next((error[0].decode(errors="replace") for error in errors), "")


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
