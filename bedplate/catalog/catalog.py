"""The catalog: all facts as one value, read from the data files, and refreshed from answers of AWS."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path

from bedplate.catalog.keys import KeyFacts, read_keys, write_keys
from bedplate.catalog.software import AddonPins, SoftwareSet, read_addons, read_software, write_addons, write_software
from bedplate.catalog.tables import (
    ChipFacts,
    DriverFacts,
    InstanceFacts,
    QuotaFacts,
    RegionFacts,
    ReleaseFacts,
    Sheet,
    read_accounts,
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
    write_accounts,
    write_instances,
    write_offers,
    write_prices,
    write_sheet,
)
from bedplate.errors import InputError, ViolationError, nearest
from bedplate.files import write_together

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
    account that answered, by region. `prices` has USD per hour, on demand, in `price_region`; `rates` has USD per hour
    of other items. `drivers` is by branch, `software` by name, `chips` by name of the GPU, `releases` by minor version
    of Kubernetes, `keys` by apt repository.
    """

    regions: Mapping[str, RegionFacts]
    types: Mapping[str, InstanceFacts]
    offers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)
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
    instances, offers, prices = map(read_data_file, REFRESHED)
    return Catalog(
        regions=read_regions(read_data_file("regions").rows),
        types=read_instances(instances.rows),
        offers=read_offers(offers.rows),
        accounts=read_accounts(offers.heading),
        prices=read_prices(prices.rows),
        rates=read_rates(read_data_file("rates").rows),
        quotas=read_quotas(read_data_file("quotas").rows),
        date=instances.heading["date"],
        price_date=prices.heading["date"],
        price_region=prices.heading["region"],
        drivers=read_drivers(read_data_file("drivers").rows),
        chips=read_chips(read_data_file("gpus").rows),
        releases=read_releases(read_data_file("kubernetes").rows),
        keys=read_keys(read_data_file("keys").rows),
        time_zones=read_time_zones(read_data_file("timezones").rows),
    )


def repository_key() -> str:
    """Return the public key of NVIDIA's apt repository; empty until a refresh has read it."""
    file = FOLDER / _KEY_FILE
    return file.read_text(encoding="utf-8") if file.exists() else ""


def key_text(name: str) -> str:
    """Return the public key of an apt repository."""
    return (FOLDER / f"{name}.asc").read_text(encoding="utf-8")


def write_key_files(keys: Mapping[str, KeyFacts], texts: Mapping[str, str], day: date) -> None:
    """Replace the keys of apt repositories; `texts` has those to write by name."""
    files = {"keys.txt": _dated("keys", write_keys(keys), day), **{f"{name}.asc": texts[name] for name in texts}}
    write_together({FOLDER / name: text.encode() for name, text in files.items()})


def write_software_files(sets: Mapping[str, SoftwareSet], key: str, day: date) -> None:
    """Replace the sets of versions, and the key of NVIDIA's apt repository."""
    texts = {"software.txt": _dated("software", write_software(sets), day), _KEY_FILE: key}
    write_together({FOLDER / name: text.encode() for name, text in texts.items()})


def load_addons() -> tuple[AddonPins, ...]:
    """Return the pins of the cluster's add-ons."""
    return read_addons(read_data_file("addons").rows)


def write_addon_file(addons: Iterable[AddonPins], day: date) -> None:
    """Replace the pins of the cluster's add-ons."""
    write_data_files({"addons": _dated("addons", write_addons(addons), day)})


def _dated(name: str, rows: Iterable[str], day: date) -> str:
    """Return the text of a data file with other rows and another date."""
    return write_sheet({**read_data_file(name).heading, "date": day.isoformat()}, rows)


def write_data_files(texts: Mapping[str, str]) -> None:
    """Replace data files by name, all or none."""
    write_together({FOLDER / f"{name}.txt": text.encode() for name, text in texts.items()})


REFRESHED = ("instances", "offers", "prices")
_KEY_FILE = "nvidia.asc"
_TYPES = "EC2 DescribeInstanceTypes"
_OFFERS = "EC2 DescribeInstanceTypeOfferings by availability zone"
_PRICES = "AWS price list, GetProducts: on demand, Linux, shared tenancy"
_MOST_NAMED = 3


def refreshed_texts(
    before: Mapping[str, Sheet], catalog: Catalog, regions: Collection[str], day: date
) -> dict[str, str]:
    """Return the new text of each refreshed file by name; `before` has the old files, `regions` those that answered."""
    rows = {
        "instances": write_instances(catalog.types.values()),
        "offers": write_offers(catalog.offers),
        "prices": write_prices(catalog.prices),
    }
    sources = {
        "instances": _TYPES + _coverage(before["instances"], catalog, regions),
        "offers": _OFFERS + _coverage(before["offers"], catalog, regions),
        "prices": _PRICES,
    }
    headings = {name: {**before[name].heading, "date": day.isoformat(), "source": sources[name]} for name in REFRESHED}
    headings["offers"] |= write_accounts(catalog.accounts)
    return {name: write_sheet(headings[name], rows[name]) for name in REFRESHED}


def _coverage(before: Sheet, catalog: Catalog, regions: Collection[str]) -> str:
    """Return which regions answered, and the date of the facts about other regions."""
    names = ", ".join(sorted(regions)) if len(regions) <= _MOST_NAMED else f"{len(regions)} regions"
    others = catalog.regions.keys() - set(regions)
    return f", asked in {names}" + (f"; the others as of {before.heading['date']}" if others else "")


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


def refreshed(
    catalog: Catalog, account: str, answers: Mapping[str, RegionAnswer], prices: Mapping[str, float]
) -> Catalog:
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
