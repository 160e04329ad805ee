"""Where commands print: what was asked for on stdout, everything else on stderr.

A reader of stderr who has left, and a log that is full, keep no command from its work.
"""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated

import typer

from bedplate.errors import MachineError

NOBODY_READS = 141


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout; end the command in silence when its reader has left, as after `| head`.

    Raises MachineError where stdout is closed, or what it leads to takes nothing.
    """
    if sys.stdout is None:
        raise MachineError("the answer went nowhere: stdout is closed", fix="leave it open, or lead it to a file")
    for line in lines:
        _show(f"{line}\n")
    _show("", flush=True)


def _show(text: str, *, flush: bool = False) -> None:
    try:
        print(text, end="", flush=flush)  # noqa: T201  the one place that does
    except BrokenPipeError:
        _lead_nowhere(sys.stdout)
        raise typer.Exit(NOBODY_READS) from None
    except OSError as error:
        _lead_nowhere(sys.stdout)
        fix = "what stdout leads to takes nothing: make room, or write elsewhere"
        raise MachineError(f"the answer could not be written: {error.strerror}", fix=fix) from None


def show_document(document: object) -> None:
    """Print one JSON document on stdout."""
    show([json.dumps(document, indent=2, ensure_ascii=False)])


def tell(lines: Iterable[str]) -> None:
    """Print lines on stderr; what nobody can be told is dropped."""
    Steady(sys.stderr).write("".join(f"{line}\n" for line in lines))


def is_terminal() -> bool:
    """Tell whether stderr is a terminal on which lines may be rewritten."""
    return Steady(sys.stderr).isatty() and os.environ.get("TERM") != "dumb"


class Steady:
    """A stream as something to write to that never fails; None is one that is closed."""

    encoding = "utf-8"

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop it for good once there is nobody to read it."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError:
                _lead_nowhere(self._stream)
        return len(text)

    def flush(self) -> None:
        """Do nothing: each text is flushed."""

    def isatty(self) -> bool:
        """Tell whether somebody may be in front of it."""
        return self._stream is not None and self._stream.isatty()


def _lead_nowhere(stream: IO[str]) -> None:
    """Drop what is and will be written: Python would complain when it ends of what is still buffered."""
    # Under a test a stream may have no file behind it.
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


DEFAULT_FLEET = Path("fleet.yaml")

FleetFile = Annotated[Path, typer.Argument(metavar="FLEET", help="The fleet file.")]
Parts = Annotated[
    list[str] | None, typer.Option("--stack", metavar="PART", help="shared, a region, or links; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
