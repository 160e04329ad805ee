"""The other end of a session's sockets: what bp and other commands of the agent reach by them."""

import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from ..program import ProgramError
from .channels import Channels
from .ends import END, FOLDER

PAGE, SSH, RUN, ACTIVE, EXTEND = "page", "ssh", "run", "active", "extend"
"""Sockets in the folder of a session, a file with the time of the last work, and its change."""
READY = b"the page answers\n"
"""The line before the frames of a page: shells print lines of their own before."""
# Seconds between two tries, and until one line says that it waits.
_LOOK, _SILENCE, _PART = 0.1, 2.0, 1 << 16
# What pages ask for by themselves, and the bytes of a sign of life of a WebSocket.
_POLLS, _SIGN = (b"GET /api/", b"GET /lab/api/"), 64


def connect(folder: Path, name: str) -> int:
    """Join stdin and stdout to a socket of the session in a folder, as soon as it is there; return the exit code."""
    if name == EXTEND:
        os.utime(folder / FOLDER / ACTIVE)
        return 0
    link = _reach(folder, name)
    if name == PAGE:
        link.close()
        _Page(folder).run()
        return 0
    Thread(target=_send, args=(folder, link), daemon=True).start()
    while data := link.recv(_PART):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    return 0


def _reach(folder: Path, name: str) -> socket.socket:
    """Return a connection to a socket, which a session may have to make first. Raises ProgramError if it has ended."""
    patience = time.monotonic() + _SILENCE
    while True:
        with suppress(OSError):
            return _open(folder, name)
        if time.monotonic() > patience:
            sys.stderr.write(f"waits until the session {folder.name} has started\n")
            sys.stderr.flush()
            patience = float("inf")
        time.sleep(_LOOK)


def _open(folder: Path, name: str) -> socket.socket:
    """Return a connection to a socket. Raises OSError, or ProgramError if the session has ended."""
    if (folder / END).exists() or not folder.exists():
        raise ProgramError(f"no session {folder.name} runs here")
    link = socket.socket(socket.AF_UNIX)
    try:
        # The path by the link may be too long.
        link.connect(os.path.realpath(folder / FOLDER / name))
    except BaseException:
        link.close()
        raise
    return link


def _send(folder: Path, link: socket.socket) -> None:
    """Send what comes from the person, which is a sign of work."""
    with suppress(OSError):
        while data := os.read(0, _PART):
            os.utime(folder / FOLDER / ACTIVE)
            link.sendall(data)
        link.shutdown(socket.SHUT_WR)


class _Page(Channels):
    """Many connections to a page, which answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(sys.stdin.buffer, sys.stdout.buffer, lambda: _open(folder, PAGE))
        self._active = folder / FOLDER / ACTIVE
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()

    def receive(self) -> "tuple[int, bytes] | None":
        """Return the next frame. What a page does not do by itself is a sign of work."""
        frame = super().receive()
        if frame and len(frame[1]) > _SIGN and not frame[1].startswith(_POLLS):
            os.utime(self._active)
        return frame


def start_in(session: Path, folder: Path) -> None:
    """Let a session start the run in a folder, once. Raises ProgramError or OSError."""
    with _reach(session, RUN) as link, link.makefile("rw") as stream:
        stream.write(f"{folder}\n")
        stream.flush()
        if not stream.readline():
            raise ProgramError(f"the session {session.name} does not start a run")


def is_locked(file: Path) -> bool:
    """Return whether a process has a file locked; others may look at the same time."""
    with file.open("a") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def say(text: str) -> None:
    """Write a line to the log of a session."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
