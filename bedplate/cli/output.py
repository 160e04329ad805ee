"""Printing.

Results go to stdout, warnings and progress to stderr. A closed or full stderr does not stop a command.
A closed stdout does.
"""

import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

import typer

from bedplate.errors import MachineError

# The exit status that a shell reports for a program killed by SIGPIPE: 128 + 13.
BROKEN_PIPE = 141


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout. Exit silently if the reader has closed the pipe, as in `bedplate plan | head`.

    Raises MachineError if stdout is closed, or if writing to it fails.
    """
    if sys.stdout is None:
        raise MachineError("cannot write to stdout: it is closed", fix="leave stdout open, or redirect it to a file")
    for line in lines:
        _write(f"{_printable(line)}\n")
    _write("", flush=True)


# Control characters, invisible characters and controls of the direction of text.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


def _printable(text: str) -> str:
    """Return a text that cannot control the terminal: gateways and nodes may answer anything."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _write(text: str, *, flush: bool = False) -> None:
    try:
        print(text, end="", flush=flush)  # noqa: T201  the one place that does
    except BrokenPipeError:
        _redirect_to_null(sys.stdout)
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        _redirect_to_null(sys.stdout)
        fix = "free disk space, or redirect stdout to another file"
        raise MachineError(f"cannot write to stdout: {error.strerror}", fix=fix) from None


def show_document(document: object) -> None:
    """Print one JSON document on stdout."""
    show([json.dumps(document, indent=2, ensure_ascii=False)])


def notify(lines: Iterable[str]) -> None:
    """Print lines on stderr. They are dropped if stderr is closed or full."""
    SafeStream(sys.stderr).write("".join(f"{_printable(line)}\n" for line in lines))


def is_terminal() -> bool:
    """Return whether stderr is a terminal on which lines can be redrawn."""
    return SafeStream(sys.stderr).isatty() and os.environ.get("TERM") != "dumb"


class SafeStream:
    """A text stream whose writes never fail. None means a closed stream."""

    encoding = "utf-8"

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write and flush the text. After the first failure all text is dropped."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError:
                _redirect_to_null(self._stream)
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` flushes."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()


def _redirect_to_null(stream: IO[str]) -> None:
    """Point the stream at /dev/null: else Python prints an error at exit about text that is still buffered."""
    # Under pytest a stream may have no file descriptor.
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
