"""The agent: the program that an apply runs as root on a node, sent to it over SSH.

Contains the frames of the connection (a JSON object and bytes), the node's lock, the list of unfinished operations,
and the agent itself, which runs commands and reads and writes files. The node gets this module and `program`, and has
no other module of the project.
"""

import errno
import fcntl
import json
import math
import os
import queue
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

from .program import ProgramError, run, write_file

READY = b"bedplate-agent 1\n"
"""Sent before the first frame. The operator's end skips all output of a login shell before it."""
_SIZES = struct.Struct(">II")
_MAX_SIZE = 1 << 26

Header = dict[str, object]


def send(stream: IO[bytes], header: Header, body: bytes = b"") -> None:
    """Write one frame."""
    text = json.dumps(header).encode()
    stream.write(_SIZES.pack(len(text), len(body)) + text + body)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Header, bytes]:
    """Read one frame. Raises EOFError if the stream ends before a complete frame, or holds anything else."""
    sizes = _SIZES.unpack(_read_exactly(stream, _SIZES.size))
    if max(sizes) > _MAX_SIZE:
        raise EOFError
    try:
        header = json.loads(_read_exactly(stream, sizes[0]))
    except (ValueError, RecursionError):
        raise EOFError from None
    if not isinstance(header, dict):
        raise EOFError  # noqa: TRY004  the rest of the stream is unusable
    return header, _read_exactly(stream, sizes[1])


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


STALE = 15.0
"""Seconds without a heartbeat after which the holder of the lock is expected to exit soon."""


class NodeLock:
    """A file lock that the kernel releases when the process that took it exits."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self, mode: str, holder: str, patience: float) -> str:
        """Take the lock, `alone` or `shared`; return the name of the current holder, or "" after success.

        If the holder sends no heartbeats, its connection may be cut: wait up to `patience` seconds for it to exit.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A user who can read the file can lock it, and so block every apply to this node.
        os.fchmod(handle, 0o600)
        deadline = time.monotonic() + patience
        while not _try_lock(handle, fcntl.LOCK_EX if mode == "alone" else fcntl.LOCK_SH):
            if self._has_heartbeat() or time.monotonic() > deadline:
                return os.pread(handle, 500, 0).decode(errors="replace") or "an unknown process"
            time.sleep(0.5)
        os.ftruncate(handle, 0)
        # A full disk does not prevent the lock, only the name in it.
        with suppress(OSError):
            os.pwrite(handle, holder.encode(), 0)
        return ""

    def beat(self) -> None:
        """Record a heartbeat of the operator's end."""
        os.utime(self._path)

    def _has_heartbeat(self) -> bool:
        return time.time() - self._path.stat().st_mtime < STALE


def _try_lock(handle: int, operation: int) -> bool:
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_atomically(path: Path, body: bytes) -> None:
    """Write a file. An existing file keeps its owner and mode; a symlink is followed."""
    target = path.resolve()
    mode, owner = 0o644, (-1, -1)
    with suppress(FileNotFoundError):
        status = target.stat()
        mode, owner = status.st_mode & 0o7777, (status.st_uid, status.st_gid)
    try:
        write_file(target, body, mode, owner)
    except OSError as error:
        # A file that is a mount point cannot be replaced, only written to.
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        target.write_bytes(body)


class Journal:
    """The names of the operations that an apply started and has not confirmed as done, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def unfinished(self) -> list[str]:
        """Return the operations of an apply that was interrupted."""
        try:
            return self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def note(self, name: str) -> None:
        """Record an operation before it changes the node: the restart that depends on it may never run."""
        if name in self.unfinished():
            return
        # Created only here: a dry run, and an apply refused for lack of disk space, must leave no files.
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(name + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def forget(self, done: Collection[str]) -> None:
        """Remove these operations, which are done."""
        remaining = [name for name in self.unfinished() if name not in done]
        if remaining:
            write_atomically(self._path, "".join(f"{name}\n" for name in remaining).encode())
        else:
            self.forget_all()

    def forget_all(self) -> None:
        """Remove all operations."""
        self._path.unlink(missing_ok=True)


SILENCE = 45.0
"""Seconds without a frame after which the agent assumes that the connection is lost, and exits."""
_KILLED = 124


class Agent:
    """One apply on this node. `folder` is cleared at boot; `memory` is kept."""

    def __init__(self, folder: Path, memory: Path) -> None:
        os.environ.update(LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.lock, self.journal = NodeLock(folder / "apply.lock"), Journal(memory / "unfinished")
        self._unconfirmed = folder / "unconfirmed"

    def answer(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Process one frame and return the reply; an error becomes a reply with `refused`."""
        actions: dict[str, Callable[[Header, bytes], tuple[Header, bytes]]]
        actions = {"run": self.run, "put": self.put, "get": self.get, "end": self.end}
        try:
            if header.get("note"):
                self.journal.note(str(header["note"]))
            return actions[str(header["do"])](header, body)
        except (OSError, ProgramError) as error:
            return {"refused": str(error)}, b""

    def run(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Run a shell command, sent by an operator who is root."""
        seconds = float(str(header.get("timeout") or math.inf))
        result = run("/bin/sh", "-c", str(header["command"]), data=body, seconds=seconds, folder="/")
        status = _KILLED if result.limit else result.status
        err = result.err if result.is_late else result.err + result.limit.encode()
        reply = {"status": status, "split": len(result.out), "unconfirmed": self.has_unconfirmed()}
        return {**reply, "late": result.is_late}, result.out + err

    def has_unconfirmed(self) -> bool:
        """Return whether a role waits for a new login to confirm its change."""
        return self._unconfirmed.is_dir() and any(self._unconfirmed.iterdir())

    def put(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Write a file."""
        write_atomically(Path(str(header["path"])), body)
        return {}, b""

    def get(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Read a file."""
        return {}, Path(str(header["path"])).read_bytes()

    def end(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Remove operations that are done from the journal; all of them if the frame names none."""
        done = header.get("done")
        if isinstance(done, list):
            self.journal.forget(done)
        else:
            self.journal.forget_all()
        return {}, b""


def _queue_frames(agent: Agent, mode: str, frames: "queue.Queue[tuple[Header, bytes] | None]") -> None:
    """Read frames into the queue. Heartbeats take effect at once, also during a long command."""
    while True:
        try:
            header, body = receive(sys.stdin.buffer)
        except EOFError:
            frames.put(None)
            return
        if header["do"] == "beat" and mode != "none":
            agent.lock.beat()
        frames.put((header, body))


def _start(options: Header, mode: str) -> tuple[Agent, str]:
    """Return an agent, and the holder of the lock if it is taken. Raises OSError."""
    agent = Agent(Path(str(options["folder"])), Path(str(options["memory"])))
    holder, patience = str(options["who"]), float(str(options["patience"]))
    return agent, "" if mode == "none" else agent.lock.acquire(mode, holder, patience)


def _serve() -> None:
    # The login's own umask may be stricter; the files that roles write must be readable for all users.
    os.umask(0o022)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    options, _ = receive(sys.stdin.buffer)
    mode = str(options["lock"])
    try:
        agent, held = _start(options, mode)
    except OSError as error:
        send(out, {"refused": str(error)})
        return
    send(out, {"held": held, "unfinished": agent.journal.unfinished()})
    if held:
        return
    frames: queue.Queue[tuple[Header, bytes] | None] = queue.Queue()
    threading.Thread(target=_queue_frames, args=(agent, mode, frames), daemon=True).start()
    while True:
        try:
            frame = frames.get(timeout=SILENCE)
        except queue.Empty:
            return
        if frame is None:
            return
        if frame[0]["do"] != "beat":
            send(out, *agent.answer(*frame))


def main() -> None:
    """Serve one apply until its connection ends, then exit the process."""
    with suppress(BrokenPipeError, EOFError):
        _serve()
    # A normal exit would wait for the reading thread.
    os._exit(0)
