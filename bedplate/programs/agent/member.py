"""A node of a run in its agent: it starts and stops its ranks as the coordinator says, and tells what happens here."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from .checkpoints import Opened
from .links import BEAT, AnyLink, Link, Message
from .ranks import AFTER_FAILURE, KernelLog, Ranks
from .restarts import NOTICED, PEER_LOST

GPUS = "/usr/local/bin/bedplate-gpus"
# Seconds between two looks at what happens on this node. Ranks of an attempt whose ends are recorded: a record with
# those of 512 would be slow to read.
_LOOK, _MOST_RANKS = 0.1, 64
# What the process prints that has the lease.
_SCRIPT = 'echo "$CUDA_VISIBLE_DEVICES"; exec cat'
_Start = Callable[[Ranks, Message, str], None]


class Member:
    """A node with its link to the coordinator. `gpus` are those that it leases by itself.

    `stop_of` returns the cause of a signal, the seconds that the program gets, and whether the run is over then.
    """

    def __init__(
        self, link: AnyLink, folder: Path, grace: float, gpus: int, stop_of: Callable[[], tuple[str, float, bool]]
    ) -> None:
        self._link, self._folder, self._grace, self._gpus, self._stop_of = link, folder, grace, gpus, stop_of
        self._messages, self._asked, self._notices = SimpleQueue[Message](), list[tuple[str, float]](), list[Any]()
        # Of mpirun, each for a rank.
        self._commands = list[Message]()
        self._telling, self._over = Lock(), Event()
        # The watch of a checkpoint, and the process with the lease.
        self._watch: Any = None
        self._lease: Any = None

    def take_part(self, node: int, machine: str, error: tuple[str, int], checkpoints: Path, start: _Start) -> Message:
        """Join, live through attempts with ranks that `start` starts, and return the message of the end.

        `error`: why this node cannot start, empty if it can, and the exit code of that.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.ask(*self._stop_of()))
        self._link.send("join", node=node, machine=machine, error=error[0], code=error[1])
        for target in (self._listen, self._watch_node):
            Thread(target=target, daemon=True).start()
        while (message := self._messages.get())["type"] != "end":
            if message["type"] == "start":
                is_host = bool(node and message.get("hosts"))
                resume = str(checkpoints / message["resume"]) if message["resume"] else ""
                self._live(message, resume, start, is_host=is_host)
            elif message["type"] == "lease":
                self._send("leased", is_leased=self._take_lease(message["seconds"]))
            else:
                self.end_lease()
        self._over.set()
        return message

    def ask(self, cause: str, grace: float, is_over: bool, code: int = NOTICED) -> None:  # noqa: FBT001
        """Stop the ranks of this node at once, and the others by the coordinator."""
        self._asked.append((cause, grace))
        self._notices.append({"cause": cause, "grace": grace, "is_over": is_over, "code": code})

    def _send(self, kind: str, **facts: object) -> None:
        """Send a message after all notices; a coordinator that is lost is noticed elsewhere."""
        with suppress(OSError), self._telling:
            while self._notices:
                self._link.send("notice", **self._notices.pop(0))
            self._link.send(kind, **facts)

    def _live(self, message: Message, resume: str, start: _Start, *, is_host: bool) -> None:
        """Run the ranks of this node to the end of an attempt; a host has those that mpirun asks for."""
        for name in ("stop", "resumed"):
            (self._folder / name).unlink(missing_ok=True)
        log, spared = KernelLog(), {self._lease.pid} if self._lease else set[int]()
        ranks = Ranks(self._folder / "stop", self._grace, self._asked, self._tell, spared)
        self._watch = Opened(Path(resume)) if resume else None
        start(ranks, message, resume)
        self._send("started")
        running = list[int]()

        def look() -> None:
            while self._commands:
                command = self._commands.pop(0)
                start(ranks, {**message, **command}, resume)
                running.append(command["rank"])
            for rank in [rank for rank in running if rank in ranks.ended]:
                running.remove(rank)
                self._send("done", rank=rank, code=ranks.ended[rank][0])

        ranks.wait(look, is_host=is_host)
        self._watch = None
        # The command on node 0 decides: what it leaves behind says nothing.
        ended = {rank: end for rank, end in ranks.ended.items() if not (is_host and end[-1])}
        ends: Sequence[Any] = sorted(([rank, *end] for rank, end in ended.items()), key=_importance)
        self._send(
            "ended", ranks=ends[:_MOST_RANKS], gpu_error=log.gpu_error(), is_out_of_memory=ranks.is_out_of_memory
        )

    def _tell(self, cause: str, elapsed: float) -> None:
        self._send("failed", cause=cause, elapsed=elapsed)

    def _listen(self) -> None:
        """Pass on the messages of the coordinator; requests to stop go to the ranks at once."""
        message: Message = {"type": ""}
        while message["type"] != "end":
            try:
                message = self._link.receive()
            except (OSError, ValueError):
                self._asked.append(("node 0 was lost", min(self._grace, AFTER_FAILURE)))
                message = {"type": "end", "is_over": False, "code": PEER_LOST, "cause": "node 0 was lost"}
            if message["type"] == "start":
                self._asked, self._commands = [], []
            if message["type"] == "stop":
                self._asked.append((message["cause"], message["grace"]))
            elif message["type"] == "remote":
                self._commands.append(message)
            else:
                self._messages.put(message)

    def _watch_node(self) -> None:
        """Tell of notices and of an opened checkpoint, and that this node lives, also while it ends."""
        due = 0.0
        while not self._over.is_set() or isinstance(self._link, Link):
            if (watch := self._watch) is not None and (watch or (self._folder / "resumed").exists()):
                self._watch = None
                self._send("opened")
            if self._notices or time.monotonic() > due:
                due = time.monotonic() + BEAT
                self._send("beat")
            time.sleep(_LOOK)

    def _take_lease(self, seconds: float) -> bool:
        """Wait in line for the GPUs of this node; a process keeps their lease."""
        words = (GPUS, "run", f"--gpus={self._gpus}", f"--wait={seconds:.0f}", "--", "sh", "-c", _SCRIPT)
        pipe = subprocess.PIPE
        self._lease = subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603
        while not select.select([self._lease.stdout], [], [], _LOOK)[0]:
            if self._asked:
                self._lease.terminate()
        os.environ["CUDA_VISIBLE_DEVICES"] = self._lease.stdout.readline().decode().strip()
        return bool(os.environ["CUDA_VISIBLE_DEVICES"])

    def end_lease(self) -> None:
        """Free the GPUs of this node."""
        if self._lease:
            self._lease.stdin.close()
            self._lease.wait()
            self._lease = None


def _importance(end: Sequence[Any]) -> tuple[bool, bool]:
    """Return what sorts ends: failures first, then ranks that were stopped after them."""
    _, code, *_, is_torn_down = end
    return not code, is_torn_down
