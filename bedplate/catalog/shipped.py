"""The catalogue that the project ships: read once a process, and replaced as a whole."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.instances import read_instances
from bedplate.catalog.offers import read_offers
from bedplate.catalog.prices import read_prices
from bedplate.catalog.quotas import read_quotas
from bedplate.catalog.rates import read_rates
from bedplate.catalog.regions import read_regions
from bedplate.catalog.sheet import Sheet, read_sheet
from bedplate.catalog.software import read_chips, read_drivers, read_releases
from bedplate.catalog.timezones import read_time_zones
from bedplate.writer import write_together

FOLDER = Path(__file__).parent / "data"


def shipped(name: str) -> Sheet:
    """Return one of the shipped sheets by the name of its file: regions, instances, offers, prices, drivers, ..."""
    return read_sheet((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def load_catalog() -> Catalog:
    """Return the shipped catalogue; its date is that of the instance types."""
    instances, prices = shipped("instances"), shipped("prices")
    return Catalog(
        regions=read_regions(shipped("regions").rows),
        types=read_instances(instances.rows),
        offers=read_offers(shipped("offers").rows),
        prices=read_prices(prices.rows),
        rates=read_rates(shipped("rates").rows),
        quotas=read_quotas(shipped("quotas").rows),
        date=instances.heading["date"],
        price_date=prices.heading["date"],
        price_region=prices.heading["region"],
        drivers=read_drivers(shipped("drivers").rows),
        chips=read_chips(shipped("gpus").rows),
        releases=read_releases(shipped("kubernetes").rows),
        time_zones=read_time_zones(shipped("timezones").rows),
    )


def ship(texts: Mapping[str, str]) -> None:
    """Put new texts in the place of shipped sheets, by their names: all of them, or none where the machine refuses."""
    write_together({FOLDER / f"{name}.txt": text.encode() for name, text in texts.items()})
