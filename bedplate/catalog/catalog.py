"""The catalogue as one value: built from the shipped data, or from a few facts in a test."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.catalog.facts import InstanceFacts, RegionFacts
from bedplate.catalog.quotas import QuotaFacts
from bedplate.catalog.software import ChipFacts, DriverFacts


@dataclass(frozen=True)
class Catalog:
    """Dated facts about AWS.

    `offers` holds zone letters by instance type and region, and may name a type that `types` lacks.
    `prices` is USD an hour, on demand, in `price_region`; `rates` is USD an hour for what is no machine.
    `drivers` are by branch, `chips` by the GPU's name, `releases` by Kubernetes' minor version: the day of its last
    patch.
    """

    regions: Mapping[str, RegionFacts]
    types: Mapping[str, InstanceFacts]
    offers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, QuotaFacts] = field(default_factory=dict)
    date: str = ""
    price_date: str = ""
    price_region: str = ""
    drivers: Mapping[str, DriverFacts] = field(default_factory=dict)
    chips: Mapping[str, ChipFacts] = field(default_factory=dict)
    releases: Mapping[str, dt.date] = field(default_factory=dict)
    time_zones: frozenset[str] = frozenset()

    def offered(self, type_name: str, region: str) -> tuple[str, ...]:
        """Return the full names of the zones of `region` that offer the type."""
        return tuple(region + letter for letter in self.offers.get(type_name, {}).get(region, ""))

    def regions_offering(self, type_name: str) -> tuple[str, ...]:
        """Return the regions in which any zone offers the type, by name."""
        return tuple(sorted(self.offers.get(type_name, {})))

    def price(self, type_name: str) -> float | None:
        """Return the list price in USD an hour, or None when it is not known."""
        return self.prices.get(type_name)
