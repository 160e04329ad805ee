"""The first turn at the processor, for what counts single packets: a program that waits for its turn drops them.

Whoever else is on this machine waits meanwhile, so that it is for seconds and for a laboratory alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_OTHER = os.sched_param(0)
_FIRST = os.sched_param(1)


@contextmanager
def first_turn() -> Iterator[None]:
    """Let this process, and every program that it starts meanwhile, run before all others; where nobody may, as all."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, _FIRST)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, _OTHER)
