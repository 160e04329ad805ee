"""How the plan differs from fleet.lock, and what the operator may do about it."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.paths import is_nested
from bedplate.report.columns import aligned, counted

SHOWN = 1


def difference_lines(plan: FleetPlan) -> Iterator[str]:
    """Yield what is not recorded yet and what is held for nobody; one line when the lock agrees."""
    retired = roots(plan.retired)
    if retired:
        yield "no longer in the file, and held until `bedplate plan --write --release PATH` gives it back:"
        yield from aligned((f"- {path}", str(plan.retired[path])) for path in retired)
    if fresh := _fresh(plan):
        yield f"not recorded yet: {', '.join(fresh)}"
        yield "`bedplate plan --write` records it"
    elif not retired:
        yield "fleet.lock holds all of it"


def recorded_lines(plan: FleetPlan, released: Mapping[str, IPv4Network]) -> Iterator[str]:
    """Yield what `--write` has just recorded, and what it gave back."""
    gone = roots(released)
    if gone:
        yield f"given back, and free to be allotted anew: {', '.join(gone)}"
    if fresh := _fresh(plan):
        yield f"recorded in fleet.lock: {', '.join(fresh)}"
    elif not gone:
        yield "fleet.lock held all of it already"


def roots(blocks: Mapping[str, IPv4Network]) -> tuple[str, ...]:
    """Return the paths without those of subnets whose region is among them."""
    return tuple(path for path in blocks if not is_nested(path) or _region(path) not in blocks)


def named(names: Iterable[str], noun: str) -> str:
    """Return `3 blocks (a, 2 more)`, the first by name."""
    told = tuple(names)
    more = (f"{len(told) - SHOWN} more",) if len(told) > SHOWN else ()
    return f"{counted(len(told), noun)} ({', '.join((*told[:SHOWN], *more))})"


def _region(path: str) -> str:
    return path.partition("/zone/")[0]


def _fresh(plan: FleetPlan) -> tuple[str, ...]:
    blocks, addresses = roots(plan.news), len(plan.new_addresses)
    people, groups = len(plan.new_people), len(plan.new_groups)
    told = {
        named(blocks, "block"): blocks,
        counted(addresses, "address", "addresses"): addresses,
        counted(people, "person", "people"): people,
        counted(groups, "group"): groups,
    }
    return tuple(words for words, count in told.items() if count)
