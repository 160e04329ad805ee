"""The input of every check: a fleet, the catalog and the date; and what several checks need."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    # `vpn add` reads the fleet file without the models, which take a quarter of a second.
    from bedplate.catalog import Catalog
    from bedplate.plan.pools import PoolPlan
    from bedplate.spec import Fleet


ValueT = TypeVar("ValueT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Declared:
    """The file's content, including parts that the models rejected.

    A reference to a rejected part is not a second error, so checks look up references here and not in the fleet.
    """

    raw: Mapping[str, object]

    def names(self, *path: str) -> frozenset[str]:
        """Return the keys of the mapping, or the strings of the list, at a path."""
        value: object = self.raw
        for name in path:
            value = _child(value, name)
        if not isinstance(value, Mapping | tuple):
            return frozenset()
        return frozenset(name for name in value if isinstance(name, str))

    def has(self, key: str, name: str) -> bool:
        """Return whether the mapping at a dotted path has a key, even with a rejected value."""
        return name in self.names(*key.split("."))


@dataclass(frozen=True, slots=True)
class Context:
    """One fleet to check.

    `declared` holds at least the content of the fleet; `lost` names the top-level keys with a rejected part; `today` is
    the date in UTC.
    """

    fleet: "Fleet"
    catalog: "Catalog"
    declared: Declared
    today: date
    lost: frozenset[str] = frozenset()

    def is_whole(self, section: str) -> bool:
        """Return whether the models accepted everything under a top-level key."""
        return section not in self.lost


def _child(value: object, name: str) -> object:
    """Return the value of a mapping's key or of a list's index; None if it does not exist."""
    if isinstance(value, tuple):
        return value[int(name)] if name.isdecimal() and int(name) < len(value) else None
    return value.get(name) if isinstance(value, Mapping) else None


def repeated(pairs: Iterable[tuple[str, ValueT]]) -> Iterator[tuple[str, ValueT, str]]:
    """Yield the key and value of each duplicate, and the key that had the value first."""
    firsts: dict[ValueT, str] = {}
    for key, value in pairs:
        first = firsts.setdefault(value, key)
        if first != key:
            yield key, value, first


def one_of(names: Iterable[str]) -> str:
    """Return the fix `write a` or `write one of a, b`; empty if there are no names."""
    ordered = sorted(names)
    return f"write {'one of ' if ordered[1:] else ''}{', '.join(ordered)}" if ordered else ""


def planned_pools(context: Context) -> "Mapping[str, tuple[PoolPlan, ...]]":
    """Return the pools of each group whose rungs are all in regions of the fleet; other groups cannot be planned."""
    from bedplate.plan.planner import group_pools  # noqa: PLC0415  # slow to import, as all models

    fleet = context.fleet
    return {
        name: tuple(group_pools(name, group, fleet, context.catalog))
        for name, group in fleet.groups.items()
        if all(rung.region in fleet.regions for rung in group.ladder)
    }
