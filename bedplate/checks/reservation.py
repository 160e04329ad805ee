"""Reservations and capacity blocks: one type, one zone, so many machines; and what a ladder of them can hold.

What a reservation holds is the file's word: nothing here asks AWS.
"""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.ladder import Rungs, rungs_of
from bedplate.checks.market import RESERVED
from bedplate.checks.rules import fault
from bedplate.spec.group import Group, Market, Rung

# Amazon EC2 user guide, Capacity Blocks for ML: instances of one block, and the types that are sold.
MOST_OF_BLOCK = 64
BLOCK_FAMILIES = frozenset(
    {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200", "p6e-gb300", "trn1", "trn2"}
)


def check_reservations(evidence: Evidence) -> Iterator[Fault]:
    """Tell reservations that are said to be of two zones, two types or two sizes."""
    zones: dict[str, str] = {}
    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            ident = rung.reservation
            if ident is None or rung.market not in RESERVED:
                continue
            if rung.zone and zones.setdefault(ident, rung.zone) != rung.zone:
                yield fault("E315", f"{key}.zone", f"{ident} is in {zones[ident]} elsewhere in this file")
            if rung.reserved and sizes.setdefault(ident, rung.reserved) != rung.reserved:
                message = f"{ident} holds {sizes[ident]} machines elsewhere in this file"
                yield fault("E345", f"{key}.reserved", message, f"write {sizes[ident]} in both, or correct the other")
            if types.setdefault(ident, group.types[0]) != group.types[0]:
                yield fault("E345", f"{key}.reservation", f"{ident} is of {types[ident]} elsewhere in this file")


def check_blocks(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups and rungs that a reservation or a block cannot serve."""
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            if rung.market in RESERVED and len(group.types) > 1:
                yield fault("E344", key, f"it would have to hold {' and '.join(group.types)}")
            if rung.market is Market.CAPACITY_BLOCK:
                yield from _block(key, rung, group)
        yield from _never_filled(f"groups.{name}", group, rungs_of(name, group))


def holds(rung: Rung) -> int | None:
    """Return how many machines a rung can hold by what it is; None where nothing limits it."""
    if rung.market not in RESERVED:
        return None
    return rung.reserved or (MOST_OF_BLOCK if rung.market is Market.CAPACITY_BLOCK else None)


def _block(key: str, rung: Rung, group: Group) -> Iterator[Fault]:
    if rung.reserved and rung.reserved > MOST_OF_BLOCK:
        yield fault("E346", f"{key}.reserved", f"{rung.reserved} machines are more than a block has")
    for kind in group.types:
        if kind.partition(".")[0] not in BLOCK_FAMILIES:
            yield fault("E347", key, f"AWS sells no capacity blocks of {kind}")


def _never_filled(key: str, group: Group, rungs: Rungs) -> Iterator[Fault]:
    """Tell a maximum that all rungs together cannot hold; where one is without a limit there is none."""
    limits = [holds(rung) for _, rung in rungs]
    known = [limit for limit in limits if limit is not None]
    if len(known) == len(limits) and sum(known) < group.nodes.max:
        message = f"all rungs together hold {sum(known)} machines; the maximum is {group.nodes.max}"
        yield fault("W352", f"{key}.nodes.max", message, f"write max: {sum(known)}, or add a rung")
