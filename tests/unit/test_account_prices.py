"""List prices, as AWS's price list tells them."""

import json

from bedplate.account.prices import list_prices
from tests.support.priced import asked_of_the_price_list, product
from tests.support.stubbed import StubbedSession, door_of


def test_prices_are_read_page_by_page() -> None:
    """USD an hour by type, from the one region that serves the list."""
    session, asked = StubbedSession(), asked_of_the_price_list("us-east-1")
    first = {"PriceList": [product("p5.48xlarge", "55.0400000000")], "NextToken": "more"}
    session.answers("pricing", "us-east-1", "get_products", first, **asked)
    second = {"PriceList": [product("g6.xlarge", "0.8048000000")]}
    session.answers("pricing", "us-east-1", "get_products", second, **asked, NextToken="more")

    assert list_prices(door_of(session), "us-east-1") == {"p5.48xlarge": 55.04, "g6.xlarge": 0.8048}
    session.assert_all_asked()


def test_what_is_no_price_of_an_hour_is_left_out() -> None:
    """Placeholders of nothing, upfront sums, and entries that are not sold on demand."""
    session = StubbedSession()
    reserved_only = json.dumps({"product": {"attributes": {"instanceType": "m9.large"}}, "terms": {"Reserved": {}}})
    listed = [product("p5.48xlarge", "0.0000000000"), product("g6.xlarge", "9.0", unit="Quantity"), reserved_only]
    asked = asked_of_the_price_list("eu-west-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **asked)

    assert list_prices(door_of(session), "eu-west-1") == {}


def test_of_two_prices_the_higher_is_told() -> None:
    """A bill that is lower than what was told surprises nobody."""
    session = StubbedSession()
    listed = [product("g6.xlarge", "0.9"), product("g6.xlarge", "0.8")]
    asked = asked_of_the_price_list("us-east-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **asked)

    assert list_prices(door_of(session), "us-east-1") == {"g6.xlarge": 0.9}
