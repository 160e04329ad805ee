"""The agent itself: does what each frame asks, and serves one apply from its first frame to its last."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable  # noqa: TC003  what is sent over has no type checker before it
from contextlib import suppress
from pathlib import Path
from typing import IO

from roles.engine.agent.frame import READY, Header, receive, send
from roles.engine.agent.journal import Journal
from roles.engine.agent.lock import NodeLock
from roles.engine.agent.whole_file import write_whole

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
