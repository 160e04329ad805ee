"""What the pools cost, in one line, and the endpoints, in another."""

from collections.abc import Iterator

from bedplate.catalog.endpoint import EndpointPrice
from bedplate.plan import FleetPlan
from bedplate.plan.endpoints import endpoint_interfaces
from bedplate.plan.prices import PriceSpan
from bedplate.report.columns import counted


def price_lines(span: PriceSpan) -> Iterator[str]:
    """Yield the hourly list price at minimum and at maximum, and which types it leaves out."""
    yield (
        f"list price {span.hourly.min:,.2f} USD/h at minimum, {span.hourly.max:,.2f} USD/h at maximum "
        f"(machines, {span.region}, {span.date})"
    )
    if span.unknown:
        yield f"no price known for {', '.join(span.unknown)}"


def endpoint_lines(plan: FleetPlan, price: EndpointPrice) -> Iterator[str]:
    """Yield what the interface endpoints cost a month, where there are any; what flows through them is not in it."""
    if count := endpoint_interfaces(plan):
        what = f"{counted(len(plan.endpoints), 'service')}, {counted(count, 'interface')}"
        yield f"endpoints {price.monthly(count):,.2f} USD/month ({what}, {price.region}, {price.date})"
