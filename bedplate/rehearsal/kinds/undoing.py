"""A create of several calls: when a later one is refused, what the first made is taken away again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bedplate.rehearsal.refusal import Refusal


@contextmanager
def undoing(undo: Callable[[], object]) -> Iterator[None]:
    """Run the rest of a create; when AWS refuses it, undo what was made and pass the refusal on."""
    try:
        yield
    except Refusal:
        undo()
        raise
