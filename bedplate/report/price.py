"""What the pools cost, in one line."""

from collections.abc import Iterator

from bedplate.plan.prices import PriceSpan


def price_lines(span: PriceSpan) -> Iterator[str]:
    """Yield the hourly list price at minimum and at maximum, and which types it leaves out."""
    yield (
        f"list price {span.hourly.min:,.2f} USD/h at minimum, {span.hourly.max:,.2f} USD/h at maximum "
        f"(machines, {span.region}, {span.date})"
    )
    if span.unknown:
        yield f"no price known for {', '.join(span.unknown)}"
