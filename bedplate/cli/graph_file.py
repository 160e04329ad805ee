"""A graph that an operator gives: the text of a file in `graph`'s form, or of stdin. Never judges what it holds."""

import sys
from pathlib import Path

from bedplate.errors import InputError

STDIN = "-"


def place_of(graph: str) -> str:
    """Return how messages call where the graph stands."""
    return "stdin" if graph == STDIN else graph


def text_of(graph: str) -> str:
    """Return what the file or stdin holds; InputError says why it cannot be read."""
    fix = "give a file with what `bedplate graph` prints"
    try:
        data = sys.stdin.buffer.read() if graph == STDIN else Path(graph).read_bytes()
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start:,} is not UTF-8", where=graph, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path is like that"
        raise InputError(f"{graph} cannot be read: {reason}", fix=fix) from None
