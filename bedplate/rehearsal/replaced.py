"""Parts of somebody else's class or module, replaced or added for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def replaced(owner: type | ModuleType, name: str, value: object) -> Iterator[None]:
    """Put a value, or a method, in its place, or where there was none; put all back at the end."""
    before = vars(owner).get(name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def wrapped(owner: type | ModuleType, name: str, wrap: Wrap) -> Iterator[None]:
    """Put what `wrap` makes of a method in its place; put the method back at the end."""
    with replaced(owner, name, wrap(getattr(owner, name))):
        yield
