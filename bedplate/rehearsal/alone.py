"""One simulation at a time in a process: whoever is second waits for the first, and nobody waits for itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_running = threading.Lock()
_held_by: list[int] = []


@contextmanager
def alone() -> Iterator[None]:
    """Hold the process's one simulation; RuntimeError in a thread that holds it already."""
    if threading.get_ident() in _held_by:
        raise RuntimeError("this thread runs a simulation already, and would wait for itself")
    with _running:
        _held_by.append(threading.get_ident())
        try:
            yield
        finally:
            _held_by.clear()
