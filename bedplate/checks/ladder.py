"""Ladders: rungs in places that the file declares, each of them worth trying after those before it."""

from collections.abc import Iterator

from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.group import Group, Rung

Rungs = tuple[tuple[str, Rung], ...]


def check_ladders(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong with the place of each rung of each group."""
    for name, group in evidence.fleet.groups.items():
        rungs = rungs_of(name, group)
        for key, rung in rungs:
            yield from undeclared_region(evidence, f"{key}.region", rung.region)
            yield from _zone(evidence, key, rung)
        yield from _again(rungs)
        yield from _covered(group, rungs)


def rungs_of(name: str, group: Group) -> Rungs:
    """Return the rungs of a group, each with its key."""
    return tuple((f"groups.{name}.ladder.{index}", rung) for index, rung in enumerate(group.ladder))


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


def _again(rungs: Rungs) -> Iterator[Fault]:
    """Tell two rungs that would be one Auto Scaling group, whatever else they say."""
    same = dict(rungs)
    pools = ((key, (rung.region, rung.zone, rung.market, rung.reservation)) for key, rung in rungs)
    for key, _, first in repeated(pools):
        but = "" if same[key] == same[first] else ", but for what it says beside place and market"
        yield fault("E308", key, f"rung {_number(key)} is the same as rung {_number(first)}{but}")


def _covered(group: Group, rungs: Rungs) -> Iterator[Fault]:
    """Tell a rung of one zone that comes after one of its whole region, and rungs after enough is reserved."""
    for index, (key, rung) in enumerate(rungs):
        for other, earlier in rungs[:index]:
            if rung.zone and _covers(earlier, rung):
                yield fault("E340", key, f"rung {_number(other)} has tried all of {rung.region}, {rung.zone} included")
                break
            if earlier.reserved and not earlier.ends and earlier.reserved >= group.nodes.max > 0:
                message = f"rung {_number(other)} holds {earlier.reserved} machines; the group never has more than "
                yield fault("W341", key, f"{message}{group.nodes.max}")
                break


def _covers(earlier: Rung, later: Rung) -> bool:
    """Tell whether a rung takes all that a later one could, in its region and at its price."""
    alike = (earlier.region, earlier.market, earlier.zone) == (later.region, later.market, None)
    dearer = earlier.max_price is not None and (later.max_price is None or later.max_price > earlier.max_price)
    return alike and earlier.reservation is None and not dearer


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1
