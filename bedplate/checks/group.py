"""Groups: numbers that make sense, names that fit, and types that AWS has."""

from collections.abc import Iterator

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.group import Group


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


def known_types(catalog: Catalog, group: Group) -> tuple[tuple[int, InstanceFacts], ...]:
    """Return the types of a group that the catalogue knows, each with its place in the list."""
    return tuple((i, catalog.types[name]) for i, name in enumerate(group.types) if name in catalog.types)


def has_gpus(catalog: Catalog, group: Group) -> bool:
    """Tell whether a group's machines have GPUs, as far as the catalogue knows."""
    return any(facts.gpu for _, facts in known_types(catalog, group))


def _numbers(key: str, group: Group) -> Iterator[Fault]:
    low, high = group.nodes.min, group.nodes.max
    if low > high:
        message = f"the minimum, {low}, is above the maximum, {high}"
        yield fault("E304", f"{key}.nodes.min", message, f"write max: {low}, or a smaller min")
    elif high == 0:
        yield fault("W316", f"{key}.nodes.max", "the group may never have a machine")
