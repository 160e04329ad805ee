"""Types of one group: any of them must do the work of any other, on one launch template."""

from collections.abc import Iterator

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.group import known_types
from bedplate.checks.rules import fault
from bedplate.plan.interfaces import interfaces
from bedplate.spec.group import Group, Market


def check_kinds(evidence: Evidence) -> Iterator[Fault]:
    """Tell types that differ from the first that is known, that lack the fabric, or that nothing can be like."""
    for name, group in evidence.fleet.groups.items():
        key, known = f"groups.{name}", known_types(evidence.catalog, group)
        for index, facts in known:
            yield from _unlike(f"{key}.types.{index}", facts, known[0][1], group)
            yield from _alone(evidence.catalog, f"{key}.types.{index}", facts, group)
        yield from _similar(key, group, tuple(facts for _, facts in known))


def kind_of(facts: InstanceFacts) -> str:
    """Return what a type is at its broadest: with GPUs or without, and its architecture."""
    return f"{'a GPU' if facts.gpu else 'a CPU'} type of {facts.arch}"


def gpus(facts: InstanceFacts) -> int:
    """Return how many whole GPUs a type has."""
    return facts.gpu.count if facts.gpu else 0


def _unlike(key: str, facts: InstanceFacts, first: InstanceFacts, group: Group) -> Iterator[Fault]:
    """Tell how a type differs from the first, at its broadest: what follows from that is not told beside it."""
    if kind_of(facts) != kind_of(first):
        message = f"{facts.name} is {kind_of(facts)}; {first.name} is {kind_of(first)}"
        yield fault("E305", key, message)
    elif gpus(facts) != gpus(first):
        message = f"{facts.name} has {_counted(gpus(facts))}; {first.name} has {_counted(gpus(first))}"
        yield fault("E322", key, message)
    elif facts.efa and first.efa and interfaces(facts, group.fabric) != interfaces(first, group.fabric):
        message = (
            f"{facts.name} has {facts.efa} EFA on {_cards(facts)}; {first.name} has {first.efa} on {_cards(first)}"
        )
        yield fault("E323", key, message)


def _alone(catalog: Catalog, key: str, facts: InstanceFacts, group: Group) -> Iterator[Fault]:
    if group.fabric and not facts.efa:
        yield fault("E306", key, f"{facts.name} has no EFA", _size_with_fabric(catalog, facts))
    if _is_foreign(facts):
        yield fault("W317", key, f"{facts.name} has accelerators that are not NVIDIA's")


def _size_with_fabric(catalog: Catalog, facts: InstanceFacts) -> str:
    """Return the size of the same family nearest to a type's that has EFA, as a fix; nothing where none has."""
    family = facts.name.partition(".")[0] + "."
    sizes = [other for name, other in catalog.types.items() if name.startswith(family) and other.efa]
    near = min(sizes, key=lambda other: (abs(other.vcpus - facts.vcpus), other.name), default=None)
    return f"write {near.name}, or drop fabric" if near else ""


def _is_foreign(facts: InstanceFacts) -> bool:
    return facts.accelerator is not None or (facts.gpu is not None and facts.gpu.manufacturer.lower() != "nvidia")


def _similar(key: str, group: Group, known: tuple[InstanceFacts, ...]) -> Iterator[Fault]:
    if not group.similar:
        return
    reserved = any(rung.market in (Market.RESERVATION, Market.CAPACITY_BLOCK) for rung in group.ladder)
    reasons = {
        "types with GPUs or other accelerators": any(facts.gpu or facts.accelerator for facts in known),
        "a fabric": group.fabric is not None,
        "a reservation, which holds one type": reserved,
        "types that the catalogue does not know": len(known) < len(group.types),
    }
    for reason in (reason for reason, applies in reasons.items() if applies):
        yield fault("E324", f"{key}.similar", f"nothing is chosen by likeness to {reason}")
        return


def _counted(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs" if count else "a part of a GPU"


def _cards(facts: InstanceFacts) -> str:
    count = len(facts.interfaces_per_card)
    return f"{count} network card" if count == 1 else f"{count} network cards"
