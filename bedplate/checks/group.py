"""Groups: types that AWS has and offers where they are wanted, and that serve equally well."""

from collections.abc import Iterator

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.group import Group, Rung


def check_groups(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong with the types and numbers of each group."""
    for name, group in evidence.fleet.groups.items():
        key = f"groups.{name}"
        yield from _numbers(key, group)
        types = tuple((f"{key}.types.{index}", kind) for index, kind in enumerate(group.types))
        for place, kind, _ in repeated(types):
            yield fault("E313", place, f"{kind} is listed twice")
        for place, kind in types:
            yield from unknown_type(evidence.catalog, place, kind)
        yield from _kinds(evidence.catalog, key, group)
        yield from _offers(evidence, key, group)


def unknown_type(catalog: Catalog, key: str, kind: str) -> Iterator[Fault]:
    """Tell an instance type that the catalogue does not know."""
    if kind not in catalog.types:
        # Few people mistype the first letter, and a thousand types take long to compare.
        near = nearest(kind, [name for name in catalog.types if name[0] == kind[0]])
        fix = f"write {near} ({described(catalog.types[near])})" if near else ""
        yield fault("E301", key, f"{kind} is no EC2 instance type", fix)


def described(facts: InstanceFacts) -> str:
    """Return what an operator knows a type by: its GPUs, else its processors and memory."""
    if facts.gpu and facts.gpu.count:
        return f"{facts.gpu.count} x {facts.gpu.name.upper()}"
    return f"{facts.vcpus} vCPUs, {facts.memory_mib // 1024} GiB"


def _numbers(key: str, group: Group) -> Iterator[Fault]:
    low, high = group.nodes.min, group.nodes.max
    if low > high:
        message = f"the minimum, {low}, is above the maximum, {high}"
        yield fault("E304", f"{key}.nodes.min", message, f"write max: {low}, or a smaller min")
    elif high == 0:
        yield fault("W316", f"{key}.nodes.max", "the group may never have a machine")


def _kinds(catalog: Catalog, key: str, group: Group) -> Iterator[Fault]:
    """Tell types that differ in kind from the first that is known, or that lack the fabric."""
    known = [(index, catalog.types[kind]) for index, kind in enumerate(group.types) if kind in catalog.types]
    for index, facts in known:
        place = f"{key}.types.{index}"
        if _kind(facts) != _kind(known[0][1]):
            message = f"{facts.name} is {_kind(facts)}; {known[0][1].name} is {_kind(known[0][1])}"
            yield fault("E305", place, message)
        if group.fabric and not facts.efa:
            yield fault("E306", place, f"{facts.name} has no EFA")
        if _is_foreign(facts):
            yield fault("W317", place, f"{facts.name} has accelerators that are not NVIDIA's")


def _kind(facts: InstanceFacts) -> str:
    return f"{'a GPU' if facts.gpu else 'a CPU'} type of {facts.arch}"


def _is_foreign(facts: InstanceFacts) -> bool:
    return facts.accelerator is not None or (facts.gpu is not None and facts.gpu.manufacturer.lower() != "nvidia")


def _offers(evidence: Evidence, key: str, group: Group) -> Iterator[Fault]:
    """Tell rungs on which no type of the group can be had."""
    known = [kind for kind in group.types if kind in evidence.catalog.types]
    if len(known) < len(group.types):
        return
    for index, rung in enumerate(group.ladder):
        wanted = _wanted_zones(evidence, rung)
        offered = {zone for kind in known for zone in evidence.catalog.offered(kind, rung.region)}
        if wanted and offered.isdisjoint(wanted):
            message = f"{', '.join(sorted(wanted))} do not offer {' or '.join(known)}"
            yield fault("E302", f"{key}.ladder.{index}", message, _elsewhere(evidence.catalog, known, offered))


def _wanted_zones(evidence: Evidence, rung: Rung) -> frozenset[str]:
    """Return the zones that a rung may use; none where region or zone is faulty itself."""
    region = evidence.fleet.regions.get(rung.region)
    if region is None or rung.region not in evidence.catalog.regions:
        return frozenset()
    return frozenset(zone for zone in region.zones if rung.zone in (None, zone))


def _elsewhere(catalog: Catalog, kinds: list[str], offered: set[str]) -> str:
    if offered:
        return f"use {', '.join(sorted(offered))}"
    regions = sorted({region for kind in kinds for region in catalog.regions_offering(kind)})
    return f"choose another type, or one of {', '.join(regions)}" if regions else ""
