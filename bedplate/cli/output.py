"""Where commands print: what was asked for on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable

import typer

NOBODY_READS = 141


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout; end the command in silence when its reader has left, as after `| head`."""
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain about what is still buffered when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(NOBODY_READS) from None


def show_document(document: object) -> None:
    """Print one JSON document on stdout."""
    show([json.dumps(document, indent=2, ensure_ascii=False)])


def tell(lines: Iterable[str]) -> None:
    """Print lines on stderr."""
    sys.stderr.writelines(f"{line}\n" for line in lines)
