"""Free address space: which integers are taken, and where an aligned block still fits.

Works on the edges of intervals, never on single addresses, so a /0 costs no more than a /28.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

ADDRESS_BITS = 32


@dataclass(frozen=True, slots=True)
class Span:
    """The addresses from `first` up to, not including, `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """How many addresses it holds."""
        return max(0, self.end - self.first)


def span_of(block: IPv4Network) -> Span:
    """Return the addresses of a block."""
    first = int(block.network_address)
    return Span(first, first + block.num_addresses)


def block_size(prefix: int) -> int:
    """Return how many addresses a block of that prefix length holds."""
    return 1 << (ADDRESS_BITS - prefix)


class Space:
    """The taken addresses, as sorted intervals that neither overlap nor touch; `take` is the only change."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, taken: Iterable[IPv4Network] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for block in taken:
            self.take(block)

    def take(self, block: IPv4Network) -> None:
        """Mark a block as taken; taking it twice is the same as once."""
        span = span_of(block)
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first, end = span.first, span.end
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def gaps(self, within: Span) -> Iterator[Span]:
        """Yield the free stretches inside a span, lowest first."""
        cursor = within.first
        for index in range(bisect_right(self._ends, within.first), len(self._firsts)):
            if self._firsts[index] >= within.end:
                break
            if cursor < self._firsts[index]:
                yield Span(cursor, self._firsts[index])
            cursor = self._ends[index]
        if cursor < within.end:
            yield Span(cursor, within.end)

    def free(self, within: Span) -> int:
        """Return how many addresses of a span are free."""
        return sum(gap.size for gap in self.gaps(within))

    def lowest(self, prefix: int, within: Span) -> IPv4Network | None:
        """Return the lowest free aligned block, or None when none fits."""
        size = block_size(prefix)
        for gap in self.gaps(within):
            first = -(-gap.first // size) * size
            if first + size <= gap.end:
                return IPv4Network((first, prefix))
        return None

    def highest(self, prefix: int, within: Span) -> IPv4Network | None:
        """Return the highest free aligned block, or None when none fits."""
        size = block_size(prefix)
        for gap in reversed(tuple(self.gaps(within))):
            first = (gap.end - size) // size * size
            if first >= gap.first:
                return IPv4Network((first, prefix))
        return None
