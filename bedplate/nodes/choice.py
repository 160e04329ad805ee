"""Selection of machines by name, site or group."""

from collections.abc import Iterable, Iterator, Sequence

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, find_node, permanent_nodes


def nodes_by_name(plan: FleetPlan, names: Iterable[str], catalog: Catalog) -> Iterator[NodePlan]:
    """Yield the machines of these names; InputError, with the nearest name, for an unknown one."""
    for name in names:
        yield find_node(plan, _with_place(plan, name), catalog)


def nodes_of_sites(plan: FleetPlan, sites: Sequence[str]) -> Iterator[NodePlan]:
    """Yield the machines of these sites; InputError for an unknown site."""
    for name in sites:
        if name not in plan.sites_by_name:
            raise InputError(f"the fleet {plan.name} has no site {name}", fix=_one_of(name, [*plan.sites_by_name]))
    yield from (node for node in permanent_nodes(plan) if node.place in sites)


def check_groups(plan: FleetPlan, groups: Iterable[str]) -> None:
    """Raise InputError for an unknown group."""
    known = list(dict.fromkeys(pool.group for pool in plan.pools))
    for name in groups:
        if name not in known:
            raise InputError(f"the fleet {plan.name} has no group {name}", fix=_one_of(name, known))


def unique_nodes(nodes: Iterable[NodePlan]) -> tuple[NodePlan, ...]:
    """Return the machines without duplicates, in order."""
    return tuple({node.name: node for node in nodes}.values())


def _with_place(plan: FleetPlan, name: str) -> str:
    """Return the name with its place, if only one permanent machine has that host name."""
    if "." in name:
        return name
    matches = [node.name for node in permanent_nodes(plan) if node.host == name]
    return matches[0] if len(matches) == 1 else name


def _one_of(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"write {near}" if near else f"one of {', '.join(known)}" if known else "the fleet has none"
