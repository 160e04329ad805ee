"""Regions as text: name, zone letters, whether an account must enable it first, the place."""

from collections.abc import Iterable

from bedplate.catalog.facts import RegionFacts

OPT_IN = "opt-in"


def read_regions(rows: Iterable[str]) -> dict[str, RegionFacts]:
    """Return the regions by name."""
    facts = (_read_row(row) for row in rows)
    return {region.name: region for region in facts}


def _read_row(row: str) -> RegionFacts:
    name, letters, access, place = row.split("\t")
    zones = tuple(name + letter for letter in letters)
    return RegionFacts(name=name, zones=zones, opt_in=access == OPT_IN, place=place)
