"""A line that breaks once in each operation of an apply: `python -m tests.testlab.fakes.brittle_connection BOOK WAY...`.

WAY, such as `ssh NODE`, is given the far end's command. Which operations it has broken in stand in the file BOOK: so
applies that follow one another come further each time. It breaks after the first, the second or the third frame of an
operation, by turns, or where the operation ends before that; never between two questions, which change nothing. The
frame comes through, and nobody hears what came of it: what is done within a second is done, anything longer is in the
middle of its work when the WAY is killed, as by a lost connection.
"""

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import IO

from roles.engine.agent import receive, send
from tests.testlab.fakes.broken_connection import bring_back, introduce

CONFIRMING, ENDING = "confirming", "ending"
"""What the book calls the two moments that are no operations: somebody comes in anew; all is done."""
_DEPTHS, _UNHEARD_SECONDS = 3, 1.0


def main() -> None:
    """Carry frames until the line breaks, or either end hangs up."""
    book, way = Path(sys.argv[1]), sys.argv[2:]
    broken = Event()
    with subprocess.Popen(way, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as far:
        assert far.stdin
        assert far.stdout
        answers = Thread(target=bring_back, args=(far.stdout, broken), daemon=True)
        answers.start()
        introduce(far.stdin)
        try:
            _carry(far.stdin, book, broken)
        except EOFError:
            far.stdin.close()
            far.wait()
        else:
            answers.join(_UNHEARD_SECONDS)
            far.kill()


def victims(book: Path) -> list[str]:
    """Return the operations in which the line broke, in their order."""
    return book.read_text(encoding="utf-8").splitlines() if book.exists() else []


def _carry(to: IO[bytes], book: Path, broken: Event) -> None:
    """Carry frames up to the one at which the line breaks; raises EOFError where it never does."""
    opening, _ = receive(sys.stdin.buffer)
    send(to, opening)
    known, victim, left = victims(book), "", 0
    while True:
        header, body = receive(sys.stdin.buffer)
        name = _name(header, confirms=opening["lock"] == "none")
        if victim and name not in {victim, ""}:
            broken.set()
            return
        if name and not victim and name not in known:
            victim, left = name, 1 + len(known) % _DEPTHS
            book.write_text("".join(f"{each}\n" for each in (*known, victim)), encoding="utf-8")
        left -= name == victim != ""
        if victim and left == 0:
            broken.set()
        send(to, header, body)
        if broken.is_set():
            return


def _name(header: dict[str, object], *, confirms: bool) -> str:
    """Return what a frame belongs to; nothing for a question or a beat."""
    if header["do"] == "end":
        return ENDING
    return CONFIRMING if confirms and header["do"] == "run" else str(header.get("note", ""))


if __name__ == "__main__":
    main()
