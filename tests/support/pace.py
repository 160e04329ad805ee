"""How slow the processor is right now: limits in seconds are meant for a core that has its full speed."""

from time import process_time

# What the loop takes on a core at 3.5 GHz with nothing beside it, CPython 3.11.
_NOMINAL_SECONDS = 0.0125
_TURNS = 300_000


def pace() -> float:
    """Return by how much longer than there a piece of work takes here and now; 1 at least."""
    return max(1.0, min(_loop() for _ in range(3)) / _NOMINAL_SECONDS)


def _loop() -> float:
    start, total = process_time(), 0
    for turn in range(_TURNS):
        total += turn & 7
    return process_time() - start
