"""The lock of a node: who works on it, and whether they still speak."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

STALE = 15.0
"""Seconds without a beat after which a holder is taken for one that is leaving."""


class NodeLock:
    """A file that the kernel keeps locked until the process that took it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seize(self, mode: str, who: str, patience: float) -> str:
        """Take it, `alone` or `shared`; return who has it where it is not to be had, and nothing where it is ours.

        A holder that is silent may have lost its connection and be leaving: it is waited for, `patience` seconds.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Whoever may read a file may lock it, and so keep every apply from this node.
        os.fchmod(handle, 0o600)
        deadline = time.monotonic() + patience
        while not _is_ours(handle, fcntl.LOCK_EX if mode == "alone" else fcntl.LOCK_SH):
            if self._is_beating() or time.monotonic() > deadline:
                return os.pread(handle, 500, 0).decode(errors="replace") or "somebody"
            time.sleep(0.5)
        os.ftruncate(handle, 0)
        # It is ours also where there is no room to say so.
        with suppress(OSError):
            os.pwrite(handle, who.encode(), 0)
        return ""

    def beat(self) -> None:
        """Note that whoever applies is still there."""
        os.utime(self._path)

    def _is_beating(self) -> bool:
        return time.time() - self._path.stat().st_mtime < STALE


def _is_ours(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
