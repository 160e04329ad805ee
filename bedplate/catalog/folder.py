"""The file `fleet.catalog` of a fleet folder: what AWS told the fleet's account, and what other sources confirmed.

It has facts about the regions that were asked only, and goes before the facts of the package, so that everybody who
works on the fleet has the same facts. Its sections have the format of the data files.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import sha256
from itertools import chain
from math import inf

from bedplate.catalog.catalog import Catalog, RegionAnswer, refreshed
from bedplate.catalog.keys import read_keys, write_keys
from bedplate.catalog.software import (
    SoftwareSet,
    read_addons,
    read_software,
    with_known_checksums,
    with_known_pins,
    write_addons,
    write_software,
)
from bedplate.catalog.tables import (
    InstanceFacts,
    RegionFacts,
    read_instances,
    read_offers,
    read_prices,
    read_sheet,
    write_instances,
    write_offers,
    write_prices,
    write_sheet,
)

NAME = "fleet.catalog"
_VERSION = "1"
_SOURCE = "EC2 and the price list of AWS (on demand, Linux, shared tenancy); keys and checksums: their vendors"
_SECTION = re.compile(r"(?m)^\[([a-z.]+)\]\n")
_NVIDIA = "nvidia.asc"


@dataclass(frozen=True)
class FolderFacts(Catalog):
    """The facts of a fleet folder; `dates` has the day on which each region was asked.

    `software` has confirmed checksums only, `keys` renewed keys of apt repositories, and `nvidia_key` that of NVIDIA's.
    """

    regions: Mapping[str, RegionFacts] = field(default_factory=dict)
    types: Mapping[str, InstanceFacts] = field(default_factory=dict)
    software: Mapping[str, SoftwareSet] = field(default_factory=dict)
    dates: Mapping[str, date] = field(default_factory=dict)

    def with_answers(
        self, account: str, answers: Mapping[str, RegionAnswer], prices: Mapping[str, float], day: date
    ) -> "FolderFacts":
        """Return the facts with an account's answers of some regions; those of another account are dropped."""
        before = self if self.account == account else replace(self, types={}, offers={}, accounts={}, dates={})
        dates = {**before.dates, **dict.fromkeys(answers, day)}
        merged = replace(before, account=account, dates=dates, price_date=day.isoformat())
        return refreshed(merged, account, answers, prices)

    def over(self, catalog: Catalog) -> Catalog:
        """Return the catalog with these facts in place of its own; a key that ends later than these is kept."""
        answers = {region: RegionAnswer(self.types, self._offers_in(region)) for region in self.dates}
        keys = {name: key.later(self.keys.get(name, key)) for name, key in catalog.keys.items()}
        return replace(
            refreshed(catalog, self.account, answers, self.prices or catalog.prices),
            account=self.account,
            price_date=self.price_date or catalog.price_date,
            software=with_known_checksums(catalog.software, self.software),
            keys=keys,
            nvidia_key=self.nvidia_key,
            addons=with_known_pins(catalog.addons, self.addons),
        )

    def _offers_in(self, region: str) -> dict[str, str]:
        return {name: letters[region] for name, letters in self.offers.items() if region in letters}


def write_facts(facts: FolderFacts) -> str:
    """Return the text of a `fleet.catalog`; sections without facts are left out."""
    heading = {
        "version": _VERSION,
        "account": facts.account,
        "regions": " ".join(f"{name}={facts.dates[name]}" for name in sorted(facts.dates)),
        "prices": facts.price_date,
        "source": _SOURCE,
    }
    sections: dict[str, Iterable[str]] = {
        "instances": write_instances(facts.types.values()) if facts.types else (),
        "offers": write_offers(facts.offers),
        "prices": write_prices(facts.prices),
        "software": write_software(facts.software),
        "keys": write_keys(facts.keys),
        "addons": write_addons(facts.addons),
        **{f"{name}.asc": key.text.splitlines() for name, key in facts.keys.items()},
        _NVIDIA: facts.nvidia_key.splitlines(),
    }
    filled = ((f"[{name}]", *rows) for name, rows in sections.items() if rows)
    return write_sheet({key: value for key, value in heading.items() if value}, chain.from_iterable(filled))


def read_facts(text: str) -> FolderFacts:
    """Return the facts in a `fleet.catalog`; raise ValueError for any text that `write_facts` does not write."""
    head, *parts = _SECTION.split(text)
    try:
        heading = read_sheet(head).heading
        if (version := heading["version"]) != _VERSION:
            raise ValueError(f"it has format {version}, this bedplate reads {_VERSION}")
        facts = _read(heading, dict(zip(parts[::2], parts[1::2], strict=True)))
    except (LookupError, TypeError) as error:
        raise ValueError(f"it is incomplete: {error}") from None
    if write_facts(facts) != text:
        raise ValueError("it was edited, or has an unfinished merge")
    return facts


def _read(heading: Mapping[str, str], texts: Mapping[str, str]) -> FolderFacts:
    rows = {name: text.splitlines() for name, text in texts.items()}
    days = (entry.split("=") for entry in heading.get("regions", "").split())
    account, dates = heading.get("account", ""), {name: date.fromisoformat(day) for name, day in days}
    prices = read_prices(rows.get("prices", ()))
    if not all(0 < price < inf for price in prices.values()):
        raise ValueError("a price is not a number above 0")
    keys = {name: replace(key, text=texts[f"{name}.asc"]) for name, key in read_keys(rows.get("keys", ())).items()}
    if wrong := [name for name, key in keys.items() if sha256(key.text.encode()).hexdigest() != key.checksum]:
        raise ValueError(f"the key of {wrong[0]} has another checksum")
    return FolderFacts(
        account=account,
        accounts=dict.fromkeys(dates, account),
        dates=dates,
        price_date=heading.get("prices", ""),
        types=read_instances(rows["instances"]) if "instances" in rows else {},
        offers=read_offers(rows.get("offers", ())),
        prices=prices,
        software=read_software(rows.get("software", ())),
        keys=keys,
        nvidia_key=texts.get(_NVIDIA, ""),
        addons=read_addons(rows.get("addons", ())),
    )
