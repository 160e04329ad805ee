"""Regions as text: name, zone letters, whether an account must enable it first, the place."""

from collections.abc import Iterable

from bedplate.catalog.facts import RegionFacts

OPT_IN, OPEN = "opt-in", "open"


def read_regions(rows: Iterable[str]) -> dict[str, RegionFacts]:
    """Return the regions by name."""
    facts = (_read_row(row) for row in rows)
    return {region.name: region for region in facts}


def write_regions(regions: Iterable[RegionFacts]) -> tuple[str, ...]:
    """Return one row a region, by name."""
    return tuple(_write_row(region) for region in sorted(regions, key=lambda region: region.name))


def _read_row(row: str) -> RegionFacts:
    name, letters, access, place = row.split("\t")
    zones = tuple(name + letter for letter in letters)
    return RegionFacts(name=name, zones=zones, opt_in=access == OPT_IN, place=place)


def _write_row(region: RegionFacts) -> str:
    letters = "".join(zone.removeprefix(region.name) for zone in region.zones)
    return "\t".join((region.name, letters, OPT_IN if region.opt_in else OPEN, region.place))
