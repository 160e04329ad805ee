"""OpenVPN's management socket: one question, its answer, and the socket is free for the next.

Source: OpenVPN 2.6, doc/management-notes.txt.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

from .trouble import Unfinished

_SECONDS = 1.0
_LAST_WORDS = ("END", "SUCCESS:", "ERROR:")


def ask(path: Path, question: str) -> tuple[str, ...] | None:
    """Return the lines of the answer, or None where no daemon listens; Unfinished when one does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_SECONDS)
            line.connect(str(path))
            line.sendall(f"{question}\n".encode())
            return tuple(_answer(line))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise Unfinished(f"{path} does not answer: {error}") from error


def _answer(line: socket.socket) -> Iterator[str]:
    with line.makefile("r", encoding="utf-8", errors="replace") as told:
        for each in told:
            text = each.rstrip("\r\n")
            if text.startswith(">"):  # news that nobody asked for
                continue
            yield text
            if text.startswith(_LAST_WORDS):
                return
    raise ConnectionResetError("it hung up")
