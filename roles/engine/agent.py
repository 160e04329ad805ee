"""What runs on a node during one apply, as root: takes commands and files from its input, gives back what came of them.

It is sent over and run from memory by the node's own Python, so it needs the standard library alone. It holds the
node's lock as long as it lives, ends by itself when nobody speaks to it any more, but never in the middle of a command.
"""

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
from collections.abc import Callable  # noqa: TC003  what is sent over has no type checker before it
from contextlib import suppress
from pathlib import Path
from typing import IO

READY = b"bedplate-agent 1\n"
"""Comes before the first frame; whatever a login shell says before it is not for us."""
SILENCE = 45.0
"""Seconds without a beat after which whoever applied is gone."""
STALE = 15.0
"""Seconds without a beat after which a holder is taken for one that is leaving."""
TIMED_OUT = 124
_SIZES = struct.Struct(">II")
_LARGEST = 1 << 30


def send(stream: IO[bytes], header: dict[str, object], body: bytes = b"") -> None:
    """Write one frame: the sizes of its two parts, a JSON object, and bytes."""
    text = json.dumps(header).encode()
    stream.write(_SIZES.pack(len(text), len(body)) + text + body)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, object], bytes]:
    """Read one frame; raises EOFError where there is no whole one."""
    sizes = _SIZES.unpack(_exactly(stream, _SIZES.size))
    if max(sizes) > _LARGEST:
        raise EOFError
    header: dict[str, object] = json.loads(_exactly(stream, sizes[0]))
    return header, _exactly(stream, sizes[1])


def _exactly(stream: IO[bytes], count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = stream.read(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


class Agent:
    """One apply on this node: `folder` holds what is forgotten at the next boot, `memory` what is not."""

    def __init__(self, folder: str, memory: str) -> None:
        os.environ.update(LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
        self.folder = Path(folder)
        self.lock = self.folder / "apply.lock"
        self.unconfirmed = self.folder / "unconfirmed"
        self.journal = Path(memory) / "unfinished"
        for each in (self.folder, self.journal.parent):
            each.mkdir(mode=0o755, parents=True, exist_ok=True)

    def seize(self, mode: str, who: str, patience: float) -> str:
        """Take the node's lock; return who has it where it is not to be had, and nothing where it is ours.

        A holder that is silent may have lost its connection and be leaving: it is waited for, `patience` seconds.
        """
        if mode == "none":
            return ""
        self._handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Whoever may read a file may lock it, and so keep every apply from this node.
        os.fchmod(self._handle, 0o600)
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._handle, (fcntl.LOCK_EX if mode == "alone" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._is_beating() or time.monotonic() > deadline:
                    return os.pread(self._handle, 500, 0).decode(errors="replace") or "somebody"
                time.sleep(0.5)
            else:
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, who.encode(), 0)
                return ""

    def beat(self) -> None:
        """Note that whoever applies is still there."""
        os.utime(self.lock)

    def _is_beating(self) -> bool:
        return time.time() - self.lock.stat().st_mtime < STALE

    def unfinished(self) -> list[str]:
        """Return the names of operations that an earlier apply began before it was cut off."""
        try:
            return self.journal.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def note(self, name: str) -> None:
        """Remember an operation before it changes anything: what answers its change may never come to run."""
        if name in self.unfinished():
            return
        with self.journal.open("a", encoding="utf-8") as lines:
            lines.write(name + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def end(self, header: dict[str, object], _body: bytes) -> tuple[dict[str, object], bytes]:
        """Forget what was begun and is done by now: these operations, or all where none is named."""
        done = header.get("done")
        left = [name for name in self.unfinished() if name not in done] if isinstance(done, list) else []
        if left:
            self.put({"path": str(self.journal)}, "".join(f"{name}\n" for name in left).encode())
        else:
            self.journal.unlink(missing_ok=True)
        return {}, b""

    def run(self, header: dict[str, object], body: bytes) -> tuple[dict[str, object], bytes]:
        """Run a line of the shell; its output goes by way of files, so that a service it leaves behind holds nobody."""
        with tempfile.TemporaryFile(dir=self.folder) as out, tempfile.TemporaryFile(dir=self.folder) as err:
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
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = TIMED_OUT
            parts = [_content(out), _content(err)]
        return {"status": status, "split": len(parts[0]), "unconfirmed": self.has_unconfirmed()}, b"".join(parts)

    def has_unconfirmed(self) -> bool:
        """Tell whether a role waits for somebody to come in anew before it takes its change for good."""
        return self.unconfirmed.is_dir() and any(self.unconfirmed.iterdir())

    def put(self, header: dict[str, object], body: bytes) -> tuple[dict[str, object], bytes]:
        """Write a file whole or not at all; one that is there keeps its owner and its mode."""
        path = Path(str(header["path"])).resolve()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".bedplate-")
        beside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                _like(handle, path)
                file.write(body)
                file.flush()
                os.fsync(handle)
            _take_place(beside, path, body)
        finally:
            beside.unlink(missing_ok=True)
        return {}, b""

    def get(self, header: dict[str, object], _body: bytes) -> tuple[dict[str, object], bytes]:
        """Read a file."""
        return {}, Path(str(header["path"])).read_bytes()

    def answer(self, header: dict[str, object], body: bytes) -> tuple[dict[str, object], bytes]:
        """Do what one frame asks; what the system refuses is told as its answer."""
        doing: dict[str, Callable[[dict[str, object], bytes], tuple[dict[str, object], bytes]]]
        doing = {"run": self.run, "put": self.put, "get": self.get, "end": self.end}
        try:
            if header.get("note"):
                self.note(str(header["note"]))
            return doing[str(header["do"])](header, body)
        except OSError as error:
            return {"refused": str(error)}, b""


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


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


def _listen(agent: Agent, mode: str, frames: "queue.Queue[tuple[dict[str, object], bytes] | None]") -> None:
    """Hand on what comes in; beats are taken at once, also in the middle of a long command."""
    while True:
        try:
            header, body = receive(sys.stdin.buffer)
        except EOFError:
            frames.put(None)
            return
        if header["do"] == "beat" and mode != "none":
            agent.beat()
        frames.put((header, body))


def main() -> None:
    """Serve one apply, from the first frame, which says what it wants, to the last."""
    # Not that of whoever logs in: what the fleet puts on a node, its people are to read.
    os.umask(0o022)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    opening, _ = receive(sys.stdin.buffer)
    agent = Agent(str(opening["folder"]), str(opening["memory"]))
    held = agent.seize(str(opening["lock"]), str(opening["who"]), float(str(opening["patience"])))
    send(out, {"held": held, "unfinished": agent.unfinished()})
    if held:
        return
    frames: queue.Queue[tuple[dict[str, object], bytes] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(agent, opening["lock"], frames), daemon=True).start()
    while True:
        try:
            frame = frames.get(timeout=SILENCE)
        except queue.Empty:
            return
        if frame is None:
            return
        if frame[0]["do"] != "beat":
            send(out, *agent.answer(*frame))


if __name__ == "__main__":
    with suppress(BrokenPipeError, EOFError):
        main()
    # An orderly end would wait for the thread that listens.
    os._exit(0)
