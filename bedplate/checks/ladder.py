"""Ladders: rungs in places that the file declares, each tried once, reservations complete."""

from collections.abc import Iterator

from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.group import Market, Rung

RESERVED_MARKETS = (Market.RESERVATION, Market.CAPACITY_BLOCK)


def check_ladders(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong with each rung of each group."""
    for name, group in evidence.fleet.groups.items():
        rungs = tuple((f"groups.{name}.ladder.{index}", rung) for index, rung in enumerate(group.ladder))
        for key, rung in rungs:
            yield from undeclared_region(evidence, f"{key}.region", rung.region)
            yield from _zone(evidence, key, rung)
            yield from _reservation(evidence, key, rung)
        for key, _, first in repeated(rungs):
            yield fault("E308", key, f"rung {_number(key)} is the same as rung {_number(first)}")


def check_reservations(evidence: Evidence) -> Iterator[Fault]:
    """Tell a reservation that is said to lie in two zones."""
    groups = evidence.fleet.groups.items()
    rungs = ((f"groups.{name}.ladder.{i}", rung) for name, group in groups for i, rung in enumerate(group.ladder))
    zones: dict[str, str] = {}
    for key, rung in rungs:
        if rung.reservation and rung.zone and zones.setdefault(rung.reservation, rung.zone) != rung.zone:
            message = f"{rung.reservation} is in {zones[rung.reservation]} elsewhere in this file"
            yield fault("E315", f"{key}.zone", message)


def undeclared_region(evidence: Evidence, key: str, region: str) -> Iterator[Fault]:
    """Tell a region that the file uses without declaring it; where the declaration is misspelt, that one is told."""
    regions = evidence.declared.names("regions")
    if region not in regions and not _is_meant(evidence, region):
        near = nearest(region, regions)
        yield fault("E309", key, f"{region} is no region of this file", f"write {near}" if near else "")


def _is_meant(evidence: Evidence, region: str) -> bool:
    """Tell whether a name that the file declares, and AWS does not have, was meant to be that region."""
    known = evidence.catalog.regions
    near = nearest(region, evidence.declared.names("regions") - known.keys())
    return near is not None and nearest(near, known) == region


def _zone(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    zones = evidence.declared.names("regions", rung.region, "zones")
    if rung.zone is None or not zones or rung.zone in zones:
        return
    if not rung.zone.startswith(rung.region):
        yield fault("E203", f"{key}.zone", f"{rung.zone} is no zone of {rung.region}")
    else:
        message = f"{rung.region} does not list {rung.zone}"
        yield fault("E310", f"{key}.zone", message, f"list it, or write one of {', '.join(sorted(zones))}")


def _reservation(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    if rung.market not in RESERVED_MARKETS:
        if rung.reservation:
            message = f"{rung.reservation} is not used by market {rung.market}"
            yield fault("E312", f"{key}.reservation", message, "write market: reservation, or delete the id")
        return
    written = evidence.declared.names(*key.split("."))
    for name, value in (("reservation", rung.reservation), ("zone", rung.zone)):
        if value is None and name not in written:
            yield fault("E311", f"{key}.{name}", f"market {rung.market} needs the {name}", f"add {name}")


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1
