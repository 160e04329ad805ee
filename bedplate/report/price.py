"""What a fleet costs, in one line, and its interface endpoints, in another."""

from collections.abc import Iterator

from bedplate.plan.bill import Bill
from bedplate.plan.span import Span
from bedplate.report.columns import counted

_ENDPOINTS = "interface-endpoint"


def price_lines(bill: Bill) -> Iterator[str]:
    """Yield the hourly list price at minimum and at maximum, what endpoints take of it, and what is left out."""
    yield (
        f"list price {bill.hourly.min:,.2f} USD/h at minimum, {bill.hourly.max:,.2f} USD/h at maximum "
        f"({bill.region}, {bill.date}): `bedplate cost`"
    )
    yield from _endpoints(bill)
    if bill.unknown:
        yield f"no price known for {', '.join(bill.unknown)}"


def _endpoints(bill: Bill) -> Iterator[str]:
    lines = [line for line in bill.lines if line.what == _ENDPOINTS]
    usd = sum(line.usd for line in lines)
    if lines:
        count = counted(sum(line.count for line in lines), "interface")
        yield f"endpoints {Span(usd, usd).monthly.min:,.2f} USD/month of it ({count})"
