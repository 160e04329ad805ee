"""A connection that breaks once in each operation of an apply: `python -m ...brittle_connection LOG COMMAND...`.

COMMAND, such as `ssh NODE`, gets the far end's command as its last argument. The file LOG has the operations in which
the connection has broken, so that each apply gets further than the one before. The connection breaks after the first,
second or third frame of an operation in turn, or at its last frame; never between two queries, which change nothing.
The last frame arrives, but its reply is lost: a command of less than a second completes, a longer one is interrupted
when COMMAND is killed.
"""

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import IO

from bedplate.programs.apply_agent import receive, send
from tests.testlab.fakes.broken_connection import copy_replies, send_agent

CONFIRMING, ENDING = "confirming", "ending"
"""Log entries of two steps that are no operations: the confirming login, and the end of the apply."""
_DEPTHS, _REPLY_SECONDS = 3, 1.0


def main() -> None:
    """Forward frames until the connection breaks or either end closes it."""
    log, command = Path(sys.argv[1]), sys.argv[2:]
    broken = Event()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        assert node.stdin
        assert node.stdout
        replies = Thread(target=copy_replies, args=(node.stdout, broken), daemon=True)
        replies.start()
        send_agent(node.stdin)
        try:
            _forward(node.stdin, log, broken)
        except EOFError:
            node.stdin.close()
            node.wait()
        else:
            replies.join(_REPLY_SECONDS)
            node.kill()


def victims(log: Path) -> list[str]:
    """Return the operations in which the connection broke, in order."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _forward(to: IO[bytes], log: Path, broken: Event) -> None:
    """Forward frames up to the one at which the connection breaks. Raises EOFError if it does not break."""
    options, _ = receive(sys.stdin.buffer)
    send(to, options)
    past_victims, victim, left = victims(log), "", 0
    while True:
        header, body = receive(sys.stdin.buffer)
        name = _operation(header, confirms=options["lock"] == "none")
        if victim and name not in {victim, ""}:
            broken.set()
            return
        if name and not victim and name not in past_victims:
            victim, left = name, 1 + len(past_victims) % _DEPTHS
            log.write_text("".join(f"{line}\n" for line in (*past_victims, victim)), encoding="utf-8")
        left -= name == victim != ""
        if victim and left == 0:
            broken.set()
        send(to, header, body)
        if broken.is_set():
            return


def _operation(header: dict[str, object], *, confirms: bool) -> str:
    """Return the operation of a frame, empty for a query or a heartbeat."""
    if header["do"] == "end":
        return ENDING
    return CONFIRMING if confirms and header["do"] == "run" else str(header.get("note", ""))


if __name__ == "__main__":
    main()
