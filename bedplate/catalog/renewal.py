"""What AWS says today against what the catalogue knew: the facts to keep, and what has changed.

Decides only; nothing is read or written here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.facts import InstanceFacts
from bedplate.errors import ViolationError

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
