"""What every line of the tests that breaks does while it holds: it lets the agent in, and brings its answers."""

import sys
from threading import Event
from typing import IO


def introduce(to: IO[bytes]) -> None:
    """Send the far end the agent that the near end ships: its size in a line, and its text."""
    size = sys.stdin.buffer.readline()
    to.write(size + sys.stdin.buffer.read(int(size)))
    to.flush()


def bring_back(out: IO[bytes], broken: Event) -> None:
    """Bring what the far end says, until the line is broken."""
    while some := out.read1(65536):  # type: ignore[attr-defined]
        if broken.is_set():
            return
        sys.stdout.buffer.write(some)
        sys.stdout.buffer.flush()
