"""Names of time zones as text: a row an area, then its places. They are data, since not every machine has a copy."""

from collections import defaultdict
from collections.abc import Iterable

UTC = "UTC"


def read_time_zones(rows: Iterable[str]) -> frozenset[str]:
    """Return the names of all time zones, UTC among them."""
    areas = (row.split(" ") for row in rows)
    return frozenset((UTC, *(f"{area}/{place}" for area, *places in areas for place in places)))


def write_time_zones(names: Iterable[str]) -> tuple[str, ...]:
    """Return one row an area, by name."""
    areas: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        area, slash, place = name.rpartition("/")
        if slash:
            areas[area].append(place)
    return tuple(f"{area} {' '.join(places)}" for area, places in sorted(areas.items()))
