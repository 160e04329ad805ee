"""The data files of a catalogue that was asked anew: their text, under the day and the source of it."""

from collections.abc import Collection, Mapping
from datetime import date

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.instances import write_instances
from bedplate.catalog.offers import write_offers
from bedplate.catalog.prices import write_prices
from bedplate.catalog.sheet import Sheet, write_sheet

RENEWED = ("instances", "offers", "prices")
_TYPES = "EC2 DescribeInstanceTypes"
_OFFERS = "EC2 DescribeInstanceTypeOfferings by availability zone"
_PRICES = "AWS price list, GetProducts: on demand, Linux, shared tenancy"
_NAMED = 3


def rewritten(before: Mapping[str, Sheet], catalog: Catalog, asked: Collection[str], day: date) -> dict[str, str]:
    """Return the text of each renewed file by its name; `before` are the sheets that it takes the place of."""
    rows = {
        "instances": write_instances(catalog.types.values()),
        "offers": write_offers(catalog.offers),
        "prices": write_prices(catalog.prices),
    }
    sources = {
        "instances": _TYPES + _where(before["instances"], catalog, asked),
        "offers": _OFFERS + _where(before["offers"], catalog, asked),
        "prices": _PRICES,
    }
    return {name: write_sheet(_heading(before[name], sources[name], day), rows[name]) for name in RENEWED}


def _heading(before: Sheet, source: str, day: date) -> dict[str, str]:
    return {**before.heading, "date": day.isoformat(), "source": source}


def _where(before: Sheet, catalog: Catalog, asked: Collection[str]) -> str:
    """Return which regions answered, and of when the others' facts are."""
    named = ", ".join(sorted(asked)) if len(asked) <= _NAMED else f"{len(asked)} regions"
    others = catalog.regions.keys() - set(asked)
    return f", asked in {named}" + (f"; the others as of {before.heading['date']}" if others else "")
