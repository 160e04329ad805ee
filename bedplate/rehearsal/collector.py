"""Python's garbage collector, kept from searching the whole heap every few resources."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A rehearsal's heap is large and lives long (the SDK's futures, moto's and botocore's models): at the usual thresholds
# a third of its time goes into looking through it again and again.
_SELDOM: Final = (50_000, 20, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom for as long as the context lasts."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
