"""The catalogue as one value: built from the shipped data, or from a few facts in a test."""

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path

from bedplate.catalog.facts import InstanceFacts, RegionFacts
from bedplate.catalog.tables import (
    ChipFacts,
    DriverFacts,
    QuotaFacts,
    Sheet,
    read_chips,
    read_drivers,
    read_instances,
    read_offers,
    read_prices,
    read_quotas,
    read_rates,
    read_regions,
    read_releases,
    read_sheet,
    read_time_zones,
    write_instances,
    write_offers,
    write_prices,
    write_sheet,
)
from bedplate.errors import ViolationError
from bedplate.writer import write_together


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


# An answer that was cut short must not empty the catalogue.
_MOST_DROPPED = 0.1


@dataclass(frozen=True, slots=True)
class RegionAnswer:
    """What one region answered: facts of its types by name, and the letters of the zones that offer each."""

    types: Mapping[str, InstanceFacts]
    offers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """How many facts of a kind there were, and how many were added, changed or dropped."""

    what: str
    before: int
    added: int
    changed: int
    dropped: int

    @property
    def is_large(self) -> bool:
        """Whether it drops more than a tenth of what was known."""
        return self.dropped > self.before * _MOST_DROPPED


def renewed(catalog: Catalog, answers: Mapping[str, RegionAnswer], prices: Mapping[str, float]) -> Catalog:
    """Return the catalogue with what the asked regions answered; what only others could know stays."""
    return replace(catalog, types=_types(catalog, answers), offers=_offers(catalog, answers), prices=prices)


def changes(before: Catalog, after: Catalog) -> Iterator[Change]:
    """Yield what differs, a line a kind of fact; offers are told region by region, for that is how they are asked."""
    yield _change("instance types", before.types, after.types)
    yield _change("prices", before.prices, after.prices)
    for region in sorted({name for offered in before.offers.values() for name in offered} | before.regions.keys()):
        one, other = _zones(before, region), _zones(after, region)
        if one or other:
            yield _change(f"offers in {region}", one, other)


def check_whole(told: tuple[Change, ...]) -> None:
    """Raise ViolationError where a change drops so much that the answer was more likely cut short."""
    if large := [each for each in told if each.is_large]:
        what = ", ".join(f"{each.dropped:,} of {each.before:,} {each.what}" for each in large)
        raise ViolationError(
            f"nothing was written: AWS no longer tells of {what}", fix="ask again; if it is so, add --force"
        )


def _types(catalog: Catalog, answers: Mapping[str, RegionAnswer]) -> dict[str, InstanceFacts]:
    told = {name: facts for answer in answers.values() for name, facts in answer.types.items()}
    kept = {
        name: facts
        for name, facts in catalog.types.items()
        if name not in told and not _might_tell(catalog, name) <= answers.keys()
    }
    return kept | told


def _might_tell(catalog: Catalog, type_name: str) -> frozenset[str]:
    """Return the regions that would have to be silent about a type before it counts as gone."""
    return frozenset(catalog.offers.get(type_name, {})) or frozenset(catalog.regions)


def _offers(catalog: Catalog, answers: Mapping[str, RegionAnswer]) -> dict[str, dict[str, str]]:
    kept = {
        name: {region: letters for region, letters in offered.items() if region not in answers}
        for name, offered in catalog.offers.items()
    }
    for region, answer in answers.items():
        for name, letters in answer.offers.items():
            kept.setdefault(name, {})[region] = letters
    return {name: offered for name, offered in kept.items() if offered or not catalog.offers.get(name, {"": ""})}


def _zones(catalog: Catalog, region: str) -> dict[str, str]:
    return {name: offered[region] for name, offered in catalog.offers.items() if region in offered}


def _change(what: str, before: Mapping[str, object], after: Mapping[str, object]) -> Change:
    return Change(
        what=what,
        before=len(before),
        added=len(after.keys() - before.keys()),
        changed=sum(before[name] != after[name] for name in before.keys() & after.keys()),
        dropped=len(before.keys() - after.keys()),
    )
