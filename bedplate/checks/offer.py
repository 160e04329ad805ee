"""Offers: each rung of a ladder lies where AWS has machines of the group's types."""

from collections.abc import Iterator
from itertools import islice

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.kind import gpus, kind_of
from bedplate.checks.rules import fault
from bedplate.spec.group import Group, Rung

_MOST_NAMED = 2


def check_offers(evidence: Evidence) -> Iterator[Fault]:
    """Tell rungs on which no type of the group can be had, and the nearest that can."""
    for name, group in evidence.fleet.groups.items():
        known = [evidence.catalog.types[kind] for kind in group.types if kind in evidence.catalog.types]
        if len(known) == len(group.types):
            yield from _ladder(evidence, f"groups.{name}", group, known)


def _ladder(evidence: Evidence, key: str, group: Group, known: list[InstanceFacts]) -> Iterator[Fault]:
    for index, rung in enumerate(group.ladder):
        wanted = _wanted_zones(evidence, rung)
        offered = {zone for facts in known for zone in evidence.catalog.offered(facts.name, rung.region)}
        if wanted and offered.isdisjoint(wanted):
            message = f"{', '.join(sorted(wanted))} do not offer {' or '.join(facts.name for facts in known)}"
            yield fault("E302", f"{key}.ladder.{index}", message, _fix(evidence.catalog, group, known, offered, wanted))


def _wanted_zones(evidence: Evidence, rung: Rung) -> frozenset[str]:
    """Return the zones that a rung may use; none where region or zone is faulty itself."""
    region = evidence.fleet.regions.get(rung.region)
    if region is None or rung.region not in evidence.catalog.regions:
        return frozenset()
    return frozenset(zone for zone in region.zones if rung.zone in (None, zone))


def _fix(catalog: Catalog, group: Group, known: list[InstanceFacts], offered: set[str], wanted: frozenset[str]) -> str:
    ways = []
    if offered:
        ways.append(f"use {', '.join(sorted(offered))}")
    if near := tuple(islice(_alternatives(catalog, known[0], wanted, fabric=group.fabric is not None), _MOST_NAMED)):
        ways.append(f"write {' or '.join(near)}")
    regions = sorted({region for facts in known for region in catalog.regions_offering(facts.name)})
    if regions and not offered:
        ways.append(f"use one of {', '.join(regions)}")
    return ", or ".join(ways)


def _alternatives(catalog: Catalog, facts: InstanceFacts, zones: frozenset[str], *, fabric: bool) -> Iterator[str]:
    """Yield the types of the same kind that one of the zones offers, the likest first."""
    alike = [
        other
        for other in catalog.types.values()
        if kind_of(other) == kind_of(facts) and gpus(other) == gpus(facts) and (other.efa or not fabric)
    ]
    for other in sorted(alike, key=lambda other: _distance(facts, other)):
        if not zones.isdisjoint(
            zone for name in {zone[:-1] for zone in zones} for zone in catalog.offered(other.name, name)
        ):
            yield other.name


def _distance(facts: InstanceFacts, other: InstanceFacts) -> tuple[int, int, int, str]:
    mine, theirs = (one.gpu.memory_mib if one.gpu else 0 for one in (facts, other))
    return abs(theirs - mine), abs(other.vcpus - facts.vcpus), abs(other.memory_mib - facts.memory_mib), other.name
