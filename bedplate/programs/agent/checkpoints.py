"""Checkpoints in a folder: which are complete, and whether a program has opened one."""

import ctypes
import os
import select
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .restarts import Checkpoint

_MARK, _UNFINISHED = ".complete", ".tmp"
_IN_OPEN, _IN_ISDIR, _EVENT, _MOST_FOLDERS = 0x20, 0x40000000, struct.Struct("iIII"), 256
_PART = 1 << 16


def complete(folder: Path) -> Sequence[Checkpoint]:
    """Return the complete checkpoints of a folder, newest first; a folder that cannot be read has none.

    They have a name without `.tmp`, or the file `.complete`. Once a folder has that, those without it do not count.
    """
    found, marked = list[Checkpoint](), list[Checkpoint]()
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            # A link names another entry, such as the newest one.
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            with suppress(OSError):
                is_folder, stamp = entry.is_dir(), entry.stat().st_mtime_ns
                # Nothing here opens a checkpoint: that is what `Opened` looks for.
                with suppress(OSError):
                    stamp = max(stamp, Path(entry.path, _MARK).stat().st_mtime_ns)
                    marked.append(Checkpoint(entry.name, stamp))
                    continue
                if not entry.name.endswith(_UNFINISHED) and (is_folder or entry.stat().st_size):
                    found.append(Checkpoint(entry.name, stamp))
    if marked:
        found = [*marked, *(one for one in found if not (folder / one.name).is_dir())]
    return sorted(found, key=lambda one: (one.stamp, one.name), reverse=True)


class Opened:
    """Whether a file of a checkpoint was opened since, by a process of this machine.

    The kernel also sees those of file servers. inotify(7); os.inotify is not in Python.
    """

    def __init__(self, checkpoint: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_opened = bool(self._handle < 0)
        for path in _folders(checkpoint):
            # What cannot be watched counts as opened: it must not end a run.
            if libc.inotify_add_watch(self._handle, os.fsencode(path), _IN_OPEN) < 0:
                self._is_opened = True

    def __bool__(self) -> bool:
        """Return whether one was opened."""
        while not self._is_opened and select.select([self._handle], [], [], 0)[0]:
            data, at = os.read(self._handle, _PART), 0
            while at < len(data):
                _, mask, _, size = _EVENT.unpack_from(data, at)
                self._is_opened |= not mask & _IN_ISDIR
                at += _EVENT.size + size
        return self._is_opened

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)


def _folders(checkpoint: Path) -> Iterator[Path]:
    """Yield a checkpoint and the folders in it, not too many."""
    yield checkpoint
    left, count = ([checkpoint] if checkpoint.is_dir() else []), 1
    while left and count < _MOST_FOLDERS:
        with suppress(OSError):
            for entry in os.scandir(left.pop()):
                if entry.is_dir(follow_symlinks=False):
                    count += 1
                    left.append(Path(entry.path))
                    yield left[-1]
