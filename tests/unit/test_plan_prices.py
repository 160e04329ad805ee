"""What the pools cost at list price."""

from bedplate.plan import PriceSpan, Record, plan_fleet, price_span
from bedplate.plan.prices import Span
from tests.support.sketch import catalog, group, sketch

WEST, EAST = {"region": "us-west-2"}, {"region": "us-east-1"}
PRICES = {"g6.xlarge": 0.8048, "g5.xlarge": 1.006, "m7i.large": 0.1008}


def spans(**groups: object) -> PriceSpan:
    """Return the prices of a fleet of those groups."""
    known = catalog(prices=PRICES)
    return price_span(plan_fleet(sketch(groups=groups), Record({}), known), known)


def test_a_span_goes_from_the_cheapest_minimum_to_the_dearest_maximum() -> None:
    """Two rungs share one maximum: a group of four machines never costs eight."""
    priced = spans(gpu=group(WEST, EAST, types=["g6.xlarge", "g5.xlarge"]))

    assert priced.groups == {"gpu": Span(0.8048, 4.024)}


def test_groups_add_up() -> None:
    """The fleet costs what its groups cost, without the noise of floating point."""
    priced = spans(gpu=group(WEST), cpu=group(EAST, types=["m7i.large"]))

    assert priced.hourly == Span(0.9056, 3.6224)
    assert (priced.date, priced.region) == ("2026-07-20", "us-east-1")


def test_types_without_a_price_are_listed() -> None:
    """A sum that leaves something out says what."""
    priced = spans(new=group(WEST, types=["p9.48xlarge", "g6.xlarge"]), newest=group(WEST, types=["p10.large"]))

    assert priced.unknown == ("p10.large", "p9.48xlarge")
    assert priced.hourly == Span(0.8048, 3.2192)


def test_a_fleet_without_groups_costs_nothing() -> None:
    """No pools, no price."""
    assert spans().hourly == Span(0.0, 0.0)
