"""A text that is on the disk, and not just on its way there. Never holds a key: anybody may read it."""

import os
from pathlib import Path

_MODE = 0o644


def fill(path: Path, text: str) -> None:
    """Write a text to a path, and return once it would outlast an end of the power."""
    path.write_text(text)
    path.chmod(_MODE)
    with path.open() as stream:
        os.fsync(stream.fileno())


def put(path: Path, text: str) -> None:
    """Put a text at a path whole: who reads it finds the one before, or this."""
    fresh = path.with_name(f".{path.name}.new")
    fill(fresh, text)
    fresh.replace(path)
