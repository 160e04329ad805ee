"""How slow the processor is right now: limits in seconds are meant for a core that has its full speed."""

from collections.abc import Callable
from time import perf_counter, process_time

# What the loop takes on a core at 3.5 GHz with nothing beside it, CPython 3.11.
_NOMINAL_SECONDS = 0.0125
_TURNS = 300_000
# So many loops take as long as a command does, so that who else wants the core is seen in it.
_LONG = 40


def pace() -> float:
    """Return by how much longer than there a piece of work takes here and now; 1 at least."""
    return max(1.0, min(_loop(process_time) for _ in range(3)) / _NOMINAL_SECONDS)


def clock_pace() -> float:
    """Return the same by the clock, with the waits for a core that others use: for what an operator waits for."""
    return max(1.0, sum(_loop(perf_counter) for _ in range(_LONG)) / _LONG / _NOMINAL_SECONDS)


def _loop(clock: Callable[[], float]) -> float:
    start, total = clock(), 0
    for turn in range(_TURNS):
        total += turn & 7
    return clock() - start
