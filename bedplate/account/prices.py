"""List prices of instance types, asked of AWS's price list: on demand, Linux, shared machines, in US dollars."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bedplate.account.door import Door

# The price list is served from few regions, for all; this one has always been among them.
_SERVED_FROM = "us-east-1"
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
    }
)
_HOUR = "Hrs"


def list_prices(door: Door, region: str) -> dict[str, float]:
    """Return USD an hour by instance type for machines of a region; of two prices of one type, the higher."""
    prices: dict[str, float] = {}
    wanted = {**_WANTED, "regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    for page in door.pages("pricing", _SERVED_FROM, "get_products", ServiceCode="AmazonEC2", Filters=filters):
        for product in map(json.loads, page["PriceList"]):
            for price in _hourly(product):
                name = product["product"]["attributes"]["instanceType"]
                prices[name] = max(price, prices.get(name, 0))
    return prices


def _hourly(product: Mapping[str, Any]) -> Iterator[float]:
    """Yield what an hour costs; a price of nothing is a placeholder of AWS's."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == _HOUR and price:
                yield price
