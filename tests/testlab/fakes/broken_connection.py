"""A connection that breaks at an operation: `python -m ...broken_connection NUMBER MOMENT COMMAND`.

It breaks `before` or `after` the frame of operation NUMBER. The other connections of tests that break share its parts.
"""

import subprocess
import sys
from threading import Event, Thread
from typing import IO

from bedplate.programs.apply_agent import receive, send


def send_agent(to: IO[bytes]) -> None:
    """Forward the agent: its size in a line, and its text."""
    size = sys.stdin.buffer.readline()
    to.write(size + sys.stdin.buffer.read(int(size)))
    to.flush()


def copy_replies(out: IO[bytes], broken: Event) -> None:
    """Copy the node's replies until the connection is broken."""
    while data := out.read1(65536):  # type: ignore[attr-defined]
        if broken.is_set():
            return
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def main() -> None:
    """Forward frames until the connection breaks."""
    number, moment, command = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    broken = Event()
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin
        assert agent.stdout
        Thread(target=copy_replies, args=(agent.stdout, broken), daemon=True).start()
        send_agent(agent.stdin)
        _forward(agent.stdin, number, moment, broken)
        agent.stdin.close()
        agent.wait()


def _forward(to: IO[bytes], number: int, moment: str, broken: Event) -> None:
    operations: set[str] = set()
    while len(operations) < number:
        header, body = receive(sys.stdin.buffer)
        if header.get("note"):
            operations.add(str(header["note"]))
        if len(operations) == number:
            broken.set()
        if not (broken.is_set() and moment == "before"):
            send(to, header, body)


if __name__ == "__main__":
    main()
