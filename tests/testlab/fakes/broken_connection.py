"""What every line of the tests that breaks does while it holds: it lets the agent in, and brings its answers."""

import subprocess
import sys
from threading import Event, Thread
from typing import IO

from roles.engine.agent import receive, send


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


def main() -> None:
    """Carry frames until the line breaks."""
    number, moment, command = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    broken = Event()
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin
        assert agent.stdout
        Thread(target=bring_back, args=(agent.stdout, broken), daemon=True).start()
        introduce(agent.stdin)
        _carry(agent.stdin, number, moment, broken)
        agent.stdin.close()
        agent.wait()


def _carry(to: IO[bytes], number: int, moment: str, broken: Event) -> None:
    noted: set[str] = set()
    while len(noted) < number:
        header, body = receive(sys.stdin.buffer)
        if header.get("note"):
            noted.add(str(header["note"]))
        if len(noted) == number:
            broken.set()
        if not (broken.is_set() and moment == "before"):
            send(to, header, body)


if __name__ == "__main__":
    main()
