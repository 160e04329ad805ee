"""What something costs an hour, from the least to the most."""

from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.catalog.rates import HOURS_OF_MONTH

# List prices have at most five decimals; a sum of floats must not show more.
_DECIMALS = 5


@dataclass(frozen=True, slots=True)
class Span:
    """USD an hour, at minimum and at maximum."""

    min: float
    max: float

    @property
    def monthly(self) -> "Span":
        """The same for a month of 730 hours."""
        return Span(round(self.min * HOURS_OF_MONTH, 2), round(self.max * HOURS_OF_MONTH, 2))


NOTHING = Span(0.0, 0.0)


def total(spans: Iterable[Span]) -> Span:
    """Return the sum of spans."""
    every = tuple(spans)
    return Span(round(sum(each.min for each in every), _DECIMALS), round(sum(each.max for each in every), _DECIMALS))
