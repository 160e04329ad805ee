"""The process that works on nodes: started, listened to, and stopped between two operations.

It is another process because pyinfra's gevent changes the sockets of whoever loads it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from bedplate.errors import BedplateError
from bedplate.nodes.event import Event, event_of
from bedplate.nodes.order import Order, write_order

_PROGRAM = "roles.run"


class Engine:
    """A running apply."""

    def __init__(self, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        self._process = process
        self._said = said

    def events(self) -> Iterator[Event]:
        """Yield what happens until nothing more does; BedplateError where the process itself came to grief."""
        for line in cast("BinaryIO", self._process.stdout):
            yield event_of(line.decode())
        if self._process.wait() != 0:
            raise BedplateError(f"the process that applies ended with status {self._process.returncode}: {self._end()}")

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Let each node finish the operation that it is at, and begin no other."""
        # Its input ends also when this process is killed, so that it never works on unseen.
        with suppress(OSError):
            cast("BinaryIO", self._process.stdin).close()

    def _end(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"


@contextmanager
def working(order: Order) -> Iterator[Engine]:
    """Start the work on an order; whoever leaves early ends it."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603  our own interpreter and our own module
            [sys.executable, "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            # A terminal's Ctrl-C is for us alone: it would cut every connection.
            start_new_session=True,
        ) as process,
    ):
        engine = Engine(process, said)
        try:
            write_order(cast("BinaryIO", process.stdin), order)
            yield engine
        finally:
            engine.stop()
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
