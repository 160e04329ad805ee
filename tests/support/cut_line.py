"""A line that breaks: `python -m tests.support.cut_line NUMBER before|after COMMAND` runs COMMAND as `sh -c` would.

It breaks at the first frame of the operation of that number that changes anything: before the frame has come through,
or after it, so that it is carried out and nobody hears of it.
"""

import subprocess
import sys
from threading import Event, Thread
from typing import IO

from roles.engine.agent.frame import receive, send
from tests.support.frames_through import bring_back, introduce


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
