"""How the two ends of a line speak: frames of a JSON object and bytes, the sizes of both before them."""

import errno
import fcntl
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

READY = b"bedplate-agent 1\n"
"""Comes before the first frame; whatever a login shell says before it is not for us."""
_SIZES = struct.Struct(">II")
_LARGEST = 1 << 30

Header = dict[str, object]


def send(stream: IO[bytes], header: Header, body: bytes = b"") -> None:
    """Write one frame."""
    text = json.dumps(header).encode()
    stream.write(_SIZES.pack(len(text), len(body)) + text + body)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Header, bytes]:
    """Read one frame; raises EOFError where there is no whole one."""
    sizes = _SIZES.unpack(_exactly(stream, _SIZES.size))
    if max(sizes) > _LARGEST:
        raise EOFError
    header: Header = json.loads(_exactly(stream, sizes[0]))
    return header, _exactly(stream, sizes[1])


def _exactly(stream: IO[bytes], count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = stream.read(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


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


def write_whole(path: Path, body: bytes) -> None:
    """Write a file; one that is there keeps its owner and its mode, and a link is followed."""
    place = path.resolve()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".bedplate-")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _like(handle, place)
            file.write(body)
            file.flush()
            os.fsync(handle)
        _take_place(beside, place, body)
    finally:
        beside.unlink(missing_ok=True)


def _like(handle: int, path: Path) -> None:
    try:
        before = path.stat()
    except FileNotFoundError:
        os.fchmod(handle, 0o644)
    else:
        os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, before.st_mode & 0o7777)


def _take_place(beside: Path, path: Path, body: bytes) -> None:
    try:
        beside.replace(path)
    except OSError as error:
        # A file that is mounted over cannot be replaced, only written to.
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        path.write_bytes(body)


class Journal:
    """The names of operations that were begun, in their order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def unfinished(self) -> list[str]:
        """Return the names of operations that an apply began before it was cut off."""
        try:
            return self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def note(self, name: str) -> None:
        """Remember an operation before it changes anything: what answers its change may never come to run."""
        if name in self.unfinished():
            return
        # Not before: whoever only looks, or finds no room, leaves nothing behind.
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(name + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def forget(self, done: Collection[str]) -> None:
        """Forget these operations, which are done by now."""
        left = [name for name in self.unfinished() if name not in done]
        if left:
            write_whole(self._path, "".join(f"{name}\n" for name in left).encode())
        else:
            self.forget_all()

    def forget_all(self) -> None:
        """Forget every operation that was ever begun."""
        self._path.unlink(missing_ok=True)


SILENCE = 45.0
"""Seconds without a beat after which whoever applied is gone."""
TIMED_OUT = 124
DYING = 2.0
"""Seconds for which a command that was ended is waited for."""


class Agent:
    """One apply on this node: `folder` holds what is forgotten at the next boot, `memory` what is not."""

    def __init__(self, folder: Path, memory: Path) -> None:
        os.environ.update(LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.lock, self.journal = NodeLock(folder / "apply.lock"), Journal(memory / "unfinished")
        self._unconfirmed = folder / "unconfirmed"

    def answer(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Do what one frame asks; what the system refuses is told as its answer."""
        doing: dict[str, Callable[[Header, bytes], tuple[Header, bytes]]]
        doing = {"run": self.run, "put": self.put, "get": self.get, "end": self.end}
        try:
            if header.get("note"):
                self.journal.note(str(header["note"]))
            return doing[str(header["do"])](header, body)
        except OSError as error:
            return {"refused": str(error)}, b""

    def run(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Run a line of the shell; its output goes by way of files, so that a service it leaves behind holds nobody.

        They lie in memory: a node whose disk is full, or its /run, tells so.
        """
        with _file("out") as out, _file("err") as err:
            process = subprocess.Popen(  # noqa: S602  the command is a line for the shell, and comes from whoever is root
                str(header["command"]),
                shell=True,
                stdin=subprocess.PIPE if body else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                cwd="/",
            )
            try:
                process.communicate(body or None, timeout=header.get("timeout"))  # type: ignore[arg-type]
                late, status = False, process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                # What waits for a disk or a file server that is gone does not even die.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=DYING)
                late, status = True, TIMED_OUT
            parts = [_content(out), _content(err)]
        told = {"status": status, "split": len(parts[0]), "unconfirmed": self.has_unconfirmed()}
        return {**told, "late": late}, b"".join(parts)

    def has_unconfirmed(self) -> bool:
        """Tell whether a role waits for somebody to come in anew before it takes its change for good."""
        return self._unconfirmed.is_dir() and any(self._unconfirmed.iterdir())

    def put(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        """Write a file."""
        write_whole(Path(str(header["path"])), body)
        return {}, b""

    def get(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Read a file."""
        return {}, Path(str(header["path"])).read_bytes()

    def end(self, header: Header, _body: bytes) -> tuple[Header, bytes]:
        """Forget what was begun and is done by now: these operations, or all where none is named."""
        done = header.get("done")
        if isinstance(done, list):
            self.journal.forget(done)
        else:
            self.journal.forget_all()
        return {}, b""


def _file(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(name), "w+b")


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _listen(agent: Agent, mode: str, frames: "queue.Queue[tuple[Header, bytes] | None]") -> None:
    """Hand on what comes in; beats are taken at once, also in the middle of a long command."""
    while True:
        try:
            header, body = receive(sys.stdin.buffer)
        except EOFError:
            frames.put(None)
            return
        if header["do"] == "beat" and mode != "none":
            agent.lock.beat()
        frames.put((header, body))


def _opened(opening: Header, mode: str) -> tuple[Agent, str]:
    """Return an agent, and who has the node where its lock is not to be had. Raises OSError."""
    agent = Agent(Path(str(opening["folder"])), Path(str(opening["memory"])))
    who, patience = str(opening["who"]), float(str(opening["patience"]))
    return agent, "" if mode == "none" else agent.lock.seize(mode, who, patience)


def _serve() -> None:
    # Not that of whoever logs in: what the fleet puts on a node, its people are to read.
    os.umask(0o022)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    opening, _ = receive(sys.stdin.buffer)
    mode = str(opening["lock"])
    try:
        agent, held = _opened(opening, mode)
    except OSError as error:
        send(out, {"refused": str(error)})
        return
    send(out, {"held": held, "unfinished": agent.journal.unfinished()})
    if held:
        return
    frames: queue.Queue[tuple[Header, bytes] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(agent, mode, frames), daemon=True).start()
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
    """Serve one apply, from the first frame, which says what it wants, to the last; ends the process."""
    with suppress(BrokenPipeError, EOFError):
        _serve()
    # An orderly end would wait for the thread that listens.
    os._exit(0)
