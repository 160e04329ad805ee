"""The network interfaces that a machine starts with: on which card, at which place of it, and what each can do.

It follows from the type's facts alone; a card or a type never gets more than it may have, and one interface bears the
machine's only address.

Sources, read 2026-11: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards";
AWS's announcement of 2024-10-24, by which every type with EFA takes EFA-only interfaces.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bedplate.catalog import Catalog
from bedplate.catalog.facts import InstanceFacts
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Fabric


class Adapter(StrEnum):
    """What an interface can do, in EC2's words: IP, both, or the fabric alone, which takes no address."""

    ENA = "interface"
    EFA = "efa"
    EFA_ONLY = "efa-only"


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface: the index of its network card, its place on that card, and what it can do."""

    card: int
    device: int
    adapter: Adapter


PLAIN = Interface(0, 0, Adapter.ENA)
_BOTH = Interface(0, 0, Adapter.EFA)


def interfaces(facts: InstanceFacts | None, fabric: Fabric | None) -> tuple[Interface, ...]:
    """Return the interfaces of a machine, the primary one first; one alone where there is no fabric to reach.

    A type that the catalogue does not know gets one that can do both, which suits all types with EFA but the few
    whose first card is for IP alone.
    """
    if fabric is None:
        return (PLAIN,)
    if facts is None:
        return (_BOTH,)
    return tuple(_all_cards(facts)) if facts.efa else (PLAIN,)


def pool_interfaces(pool: PoolPlan, catalog: Catalog) -> tuple[Interface, ...]:
    """Return the interfaces of a pool's machines: its types share one template, so its first known type tells."""
    known = (catalog.types[name] for name in pool.types if name in catalog.types)
    return interfaces(next(known, None), pool.fabric)


def addresses_per_node(facts: InstanceFacts | None, fabric: Fabric | None) -> int:
    """Return how many addresses of its subnet a machine takes."""
    return sum(one.adapter is not Adapter.EFA_ONLY for one in interfaces(facts, fabric))


def _all_cards(facts: InstanceFacts) -> Iterator[Interface]:
    """Yield the primary interface, then an EFA on each card that has it.

    Only as many cards as EFAs have one; where a card is left over it is the first, as on p6-b300. A type of which the
    catalogue states no cards has at least one place on each.
    """
    rooms = facts.interfaces_per_card or (1,) * facts.efa
    if facts.efa < len(rooms):
        yield PLAIN
    elif facts.efa == 1 or rooms[0] == 1:
        yield _BOTH
    else:
        yield PLAIN
        yield Interface(0, 1, Adapter.EFA_ONLY)
    yield from (Interface(card, 0, Adapter.EFA_ONLY) for card in range(1, len(rooms))[: facts.efa])
