"""Regions and their zones: known to AWS, open to the account, and one of them the home."""

from collections.abc import Iterator

from bedplate.catalog import RegionFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.spec.region import Region


def check_regions(evidence: Evidence) -> Iterator[Fault]:
    """Tell regions and zones that AWS does not have, or not for this account."""
    for name, region in evidence.fleet.regions.items():
        key = f"regions.{name}"
        facts = evidence.catalog.regions.get(name)
        if facts is None:
            near = nearest(name, evidence.catalog.regions)
            yield fault("E201", key, f"{name} is no AWS region", f"write {near}" if near else "")
        elif facts.opt_in:
            yield fault("E204", key, f"{name} is closed to an account until it is enabled")
        yield from _zones(name, region, facts)


def check_home(evidence: Evidence) -> Iterator[Fault]:
    """Tell when no region is the home, or more than one."""
    homes = tuple(name for name, region in evidence.fleet.regions.items() if region.home)
    if not homes and evidence.is_whole("regions"):
        first = next(iter(evidence.fleet.regions))
        yield fault("E206", "regions", "no region is the home", f"write `home: true` in one, such as {first}")
    for name in homes[1:]:
        message = f"{name} is a second home region, beside {homes[0]}"
        yield fault("E206", f"regions.{name}.home", message, "delete `home: true` in one of them")


def _zones(name: str, region: Region, facts: RegionFacts | None) -> Iterator[Fault]:
    for index, zone in enumerate(region.zones):
        key = f"regions.{name}.zones.{index}"
        if zone in region.zones[:index]:
            yield fault("E205", key, f"{zone} is listed twice")
        elif not zone.startswith(name):
            fix = f"write one of {', '.join(facts.zones)}" if facts else ""
            yield fault("E203", key, f"{zone} is no zone of {name}", fix)
        elif facts and zone not in facts.zones:
            fix = f"write one of {', '.join(facts.zones)}"
            yield fault("E202", key, f"{name} has no zone {zone}", fix)
