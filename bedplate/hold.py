"""Exclusive locks on files (flock), with the name of the holder in a lock file in the same folder.

The kernel releases a lock when its holder ends, so a lock is never stale on one host.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path

from bedplate.errors import HeldError
from bedplate.writer import is_alive, os_errors_as_machine_errors

# A holder writes its name right after it gets the lock, so a process that fails to get it reads several times.
_ATTEMPTS, _PAUSE = 10, 0.02


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock; `since` is Unix time."""

    user: str
    host: str
    pid: int
    since: float
    command: str

    @property
    def has_ended(self) -> bool:
        """Whether it was a process of this machine that has ended."""
        return self.host == os.uname().nodename and not is_alive(self.pid)

    def __str__(self) -> str:
        age = max(0, round(time.time() - self.since))
        return f"{self.user} on {self.host}, process {self.pid}, for {age} s: {self.command}"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock `path` for this process while the block runs.

    Raises HeldError with the name of the holder if another process has the lock; does not wait.
    """
    lock_file = path.with_name(f".{path.name}.held")
    with os_errors_as_machine_errors(lock_file):
        handle = _acquired(lock_file, path)
    try:
        with os_errors_as_machine_errors(lock_file):
            _write_holder(handle)
        yield
    finally:
        # Deleted before the release: a process that has opened it finds it deleted, and opens a new one.
        with suppress(OSError):
            lock_file.unlink()
        os.close(handle)


def _acquired(lock_file: Path, path: Path) -> int:
    """Return a handle of the lock file, locked by this process."""
    while True:
        with ExitStack() as closing:
            handle = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            closing.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _held_error(handle, path) from None
            if _is_at(handle, lock_file):
                closing.pop_all()
                return handle


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _held_error(handle: int, path: Path) -> HeldError:
    return HeldError(
        f"{path.name} is locked by {_holder(handle) or 'an unknown process'}",
        where=str(path),
        fix="wait until that command has ended, then run yours again",
    )


def _write_holder(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(this_process())).encode(), 0)


def this_process() -> Holder:
    """Return this process as a holder."""
    command = " ".join(sys.argv)[:200]
    return Holder(login_name(), os.uname().nodename, os.getpid(), time.time(), command)


def login_name() -> str:
    """Return the name of the current user."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container may run with a uid without an account
        return f"user {os.getuid()}"


def _holder(handle: int) -> Holder | None:
    for _ in range(_ATTEMPTS):
        holder = parse_holder(os.pread(handle, 4096, 0))
        if holder is not None and not holder.has_ended:
            return holder
        time.sleep(_PAUSE)
    return None


def parse_holder(text: bytes) -> Holder | None:
    """Return the holder in a JSON document; None for an invalid one."""
    try:
        holder = json.loads(text)
        return Holder(holder["user"], holder["host"], int(holder["pid"]), float(holder["since"]), holder["command"])
    except (ValueError, TypeError, KeyError):
        return None
