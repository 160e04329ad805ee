"""What the checks look at: a fleet, the catalogue, the names that the file declares, and the day."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from bedplate.catalog import Catalog
from bedplate.plan.planner import group_pools
from bedplate.plan.pools import PoolPlan
from bedplate.spec import Fleet


@dataclass(frozen=True, slots=True)
class Declared:
    """The file as it was written, parts that the models refused included.

    A reference to a part with a fault of its own is no fault: so references are looked up here, not in the fleet.
    """

    raw: Mapping[str, object]

    def names(self, *path: str) -> frozenset[str]:
        """Return the keys of the mapping, or the words of the list, that stands at the path."""
        found: object = self.raw
        for name in path:
            found = _below(found, name)
        if not isinstance(found, Mapping | tuple):
            return frozenset()
        return frozenset(name for name in found if isinstance(name, str))

    def says(self, key: str, name: str) -> bool:
        """Tell whether the mapping at a dotted path has a key, were it with a value that the models refused."""
        return name in self.names(*key.split("."))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fleet to check.

    `declared` holds at least what the fleet holds; `lost` names the top keys under which the models refused something;
    `today` is the day in UTC on which it is checked.
    """

    fleet: Fleet
    catalog: Catalog
    declared: Declared
    today: date
    lost: frozenset[str] = frozenset()

    def is_whole(self, part: str) -> bool:
        """Tell whether the fleet has all that the file says under that top key."""
        return part not in self.lost


def _below(value: object, name: str) -> object:
    """Return the value of a mapping by its key, or of a list by its index; None where there is none."""
    if isinstance(value, tuple):
        return value[int(name)] if name.isdecimal() and int(name) < len(value) else None
    return value.get(name) if isinstance(value, Mapping) else None


ValueT = TypeVar("ValueT", bound=Hashable)


def repeated(pairs: Iterable[tuple[str, ValueT]]) -> Iterator[tuple[str, ValueT, str]]:
    """Yield key, value and the key that had the value first, for each value that comes again."""
    firsts: dict[ValueT, str] = {}
    for key, value in pairs:
        first = firsts.setdefault(value, key)
        if first != key:
            yield key, value, first


def planned_pools(evidence: Evidence) -> Mapping[str, tuple[PoolPlan, ...]]:
    """Return the pools of each group whose rungs all lie in regions of the fleet; of the others none can be planned."""
    fleet = evidence.fleet
    return {
        name: tuple(group_pools(name, group, fleet, evidence.catalog))
        for name, group in fleet.groups.items()
        if all(rung.region in fleet.regions for rung in group.ladder)
    }
