"""Names of time zones as text: a row an area, then its places. They are data, since not every machine has a copy."""

from collections.abc import Iterable

UTC = "UTC"


def read_time_zones(rows: Iterable[str]) -> frozenset[str]:
    """Return the names of all time zones, UTC among them."""
    areas = (row.split(" ") for row in rows)
    return frozenset((UTC, *(f"{area}/{place}" for area, *places in areas for place in places)))
