"""Values that come more than once."""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

ValueT = TypeVar("ValueT", bound=Hashable)


def repeated(pairs: Iterable[tuple[str, ValueT]]) -> Iterator[tuple[str, ValueT, str]]:
    """Yield key, value and the key that had the value first, for each value that comes again."""
    firsts: dict[ValueT, str] = {}
    for key, value in pairs:
        first = firsts.setdefault(value, key)
        if first != key:
            yield key, value, first
