"""The catalog: all facts as one value, read from the data files, with answers of AWS in place of some."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from bedplate.catalog.keys import KeyFacts, read_keys
from bedplate.catalog.software import AddonPins, SoftwareSet, read_addons, read_software
from bedplate.catalog.tables import (
    ChipFacts,
    DriverFacts,
    InstanceFacts,
    QuotaFacts,
    RegionFacts,
    ReleaseFacts,
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
)
from bedplate.errors import InputError, ViolationError, nearest

# Only in these regions each account has its own zone letters. Source: AWS Regions and Availability Zones, "AZ IDs",
# read 2026-11.
_OWN_LETTERS = frozenset(
    {
        "ap-northeast-1",
        "ap-southeast-1",
        "ap-southeast-2",
        "eu-west-1",
        "sa-east-1",
        "us-east-1",
        "us-west-1",
        "us-west-2",
    }
)


@dataclass(frozen=True)
class Catalog:
    """Dated facts about AWS.

    `offers` has zone letters by instance type and region, also for types that are not in `types`; `accounts` has the
    account that answered, by region, `account` that of the folder's facts, empty without any. `prices` has USD per
    hour, on demand, in `price_region`; `rates` has USD per hour of other items. `drivers` is by branch, `software` by
    name, `chips` by name of the GPU, `releases` by minor version of Kubernetes, `keys` by apt repository. `nvidia_key`
    is empty until a refresh has read it.
    """

    regions: Mapping[str, RegionFacts]
    types: Mapping[str, InstanceFacts]
    offers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, QuotaFacts] = field(default_factory=dict)
    date: str = ""
    price_date: str = ""
    price_region: str = ""
    drivers: Mapping[str, DriverFacts] = field(default_factory=dict)
    chips: Mapping[str, ChipFacts] = field(default_factory=dict)
    releases: Mapping[str, ReleaseFacts] = field(default_factory=dict)
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)
    nvidia_key: str = ""
    addons: tuple[AddonPins, ...] = ()
    time_zones: frozenset[str] = frozenset()
    software: Mapping[str, SoftwareSet] = field(default_factory=lambda: read_software(read_data_file("software").rows))

    def offered(self, type_name: str, region: str) -> tuple[str, ...]:
        """Return the zones of a region that offer the type."""
        return tuple(region + letter for letter in self.offers.get(type_name, {}).get(region, ""))

    def has_letters_of(self, account: str, region: str) -> bool:
        """Return whether the offers of a region have the zone letters of the account."""
        return region not in _OWN_LETTERS or self.accounts.get(region) == account

    def regions_offering(self, type_name: str) -> tuple[str, ...]:
        """Return the regions that offer the type in at least one zone, by name."""
        return tuple(sorted(self.offers.get(type_name, {})))

    def software_set(self, name: str | None) -> SoftwareSet:
        """Return the set of versions of a name; the newest for None, and for a name that the catalog does not have."""
        return self.software.get(name or "") or self.software[max(self.software)]

    def kubernetes(self, version: str) -> str:
        """Return the patch to install for a version of Kubernetes: the newest known one of a minor version.

        A minor version that the catalog does not have is returned as it is.
        """
        return self.releases[version].patch if version in self.releases else version

    def chip_in(self, model: str) -> str:
        """Return the known GPU in a longer name, such as a100 in `NVIDIA A100 80GB`; empty without one."""
        label = re.sub("[^a-z0-9]+", "-", model.lower())
        return next((name for name in self.chips if f"-{name}-" in f"-{label}-"), "")

    def price(self, type_name: str) -> float | None:
        """Return the list price in USD per hour; None if it is unknown."""
        return self.prices.get(type_name)


def check_region(catalog: Catalog, name: str) -> None:
    """Raise InputError, with the nearest name, if AWS has no such region."""
    if name not in catalog.regions:
        closest = nearest(name, catalog.regions)
        raise InputError(f"unknown AWS region {name}", fix=f"write {closest}" if closest else "name an AWS region")


FOLDER = Path(__file__).parent / "data"


def read_data_file(name: str) -> Sheet:
    """Return a data file by its name: regions, instances, offers, prices, drivers, ..."""
    return read_sheet((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def load_catalog() -> Catalog:
    """Return the catalog of the data files, with the date of its instance types."""
    instances, offers, prices = map(read_data_file, ("instances", "offers", "prices"))
    keys = read_keys(read_data_file("keys").rows)
    return Catalog(
        regions=read_regions(read_data_file("regions").rows),
        types=read_instances(instances.rows),
        offers=read_offers(offers.rows),
        prices=read_prices(prices.rows),
        rates=read_rates(read_data_file("rates").rows),
        quotas=read_quotas(read_data_file("quotas").rows),
        date=instances.heading["date"],
        price_date=prices.heading["date"],
        price_region=prices.heading["region"],
        drivers=read_drivers(read_data_file("drivers").rows),
        chips=load_chips(),
        releases=read_releases(read_data_file("kubernetes").rows),
        keys={name: replace(key, text=key_text(name)) for name, key in keys.items()},
        addons=load_addons(),
        time_zones=read_time_zones(read_data_file("timezones").rows),
    )


@cache
def load_chips() -> Mapping[str, ChipFacts]:
    """Return the GPUs by name: the only facts that roles read, other than those of their node."""
    return read_chips(read_data_file("gpus").rows)


def key_text(name: str) -> str:
    """Return the public key of an apt repository."""
    return (FOLDER / f"{name}.asc").read_text(encoding="utf-8")


def load_addons() -> tuple[AddonPins, ...]:
    """Return the pins of the cluster's add-ons."""
    return read_addons(read_data_file("addons").rows)


# An incomplete answer must not empty the catalog.
_MOST_DROPPED = 0.1


@dataclass(frozen=True, slots=True)
class RegionAnswer:
    """The answer of one region: its types by name, and the letters of the zones that offer each."""

    types: Mapping[str, InstanceFacts]
    offers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """The number of facts of one kind before, and how many were added, changed or dropped."""

    what: str
    before: int
    added: int
    changed: int
    dropped: int

    @property
    def is_large(self) -> bool:
        """Whether more than a tenth of the facts were dropped."""
        return self.dropped > self.before * _MOST_DROPPED


CatalogT = TypeVar("CatalogT", bound=Catalog)


def refreshed(
    catalog: CatalogT, account: str, answers: Mapping[str, RegionAnswer], prices: Mapping[str, float]
) -> CatalogT:
    """Return the catalog with an account's answers of some regions; facts of other regions are kept."""
    return replace(
        catalog,
        types=_types(catalog, answers),
        offers=_offers(catalog, answers),
        accounts={**catalog.accounts, **dict.fromkeys(answers, account)},
        prices=prices,
    )


def changes(before: Catalog, after: Catalog) -> Iterator[Change]:
    """Yield the changes of each kind of fact; for offers, of each region."""
    yield _change("instance types", before.types, after.types)
    yield _change("prices", before.prices, after.prices)
    for region in sorted({name for offered in before.offers.values() for name in offered} | before.regions.keys()):
        old, new = _zones(before, region), _zones(after, region)
        if old or new:
            yield _change(f"offers in {region}", old, new)


def check_whole(changes: tuple[Change, ...]) -> None:
    """Raise ViolationError if a change drops so many facts that the answer is probably incomplete."""
    if large := [change for change in changes if change.is_large]:
        dropped = ", ".join(f"{change.dropped:,} of {change.before:,} {change.what}" for change in large)
        raise ViolationError(
            f"nothing was written: the answer of AWS lacks {dropped}",
            fix="run it again; if the answer stays the same, add --force",
        )


def _types(catalog: Catalog, answers: Mapping[str, RegionAnswer]) -> dict[str, InstanceFacts]:
    answered = {name: facts for answer in answers.values() for name, facts in answer.types.items()}
    kept = {
        name: facts
        for name, facts in catalog.types.items()
        if name not in answered and not _offering_regions(catalog, name) <= answers.keys()
    }
    return kept | answered


def _offering_regions(catalog: Catalog, type_name: str) -> frozenset[str]:
    """Return the regions that must all omit a type before it is dropped: those that offer it, or else all."""
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
