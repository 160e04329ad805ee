"""The machines of a fleet: where each is, what it does, and how many more of its kind there may be."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from bedplate.plan.node import NodePlan
from bedplate.report.columns import aligned, counted


def node_lines(standing: Iterable[NodePlan], pooled: Iterable[NodePlan], trusted: Iterable[str]) -> Iterator[str]:
    """Yield a row a machine that always stands, and one for those of a pool; `*` marks a host key that is known."""
    fixed, keys = tuple(standing), frozenset(trusted)
    rows = [("  node", "address", "duties", "until"), *(_row(node, keys) for node in fixed)]
    rows += [_pool(tuple(nodes)) for _, nodes in groupby(pooled, key=lambda node: (_group(node), node.place))]
    yield from aligned(rows)
    known = sum(node.name in keys for node in fixed)
    yield f"{counted(len(fixed), 'machine')} always stand, {known} of a known host key (*): `bedplate node trust`"


def node_document(nodes: Iterable[tuple[NodePlan, bool]], trusted: Iterable[str]) -> dict[str, Any]:
    """Return the machines, each with whether it always stands, as JSON's own types."""
    keys = frozenset(trusted)
    return {"nodes": [{**_entry(node), "standing": stands, "trusted": node.name in keys} for node, stands in nodes]}


def _row(node: NodePlan, keys: frozenset[str]) -> tuple[str, ...]:
    mark = "*" if node.name in keys else " "
    return (f"{mark} {node.name}", str(node.address or "by name"), _duties(node))


def _pool(nodes: tuple[NodePlan, ...]) -> tuple[str, ...]:
    first, last = nodes[0], nodes[-1]
    names = first.name if first == last else f"{first.name} to -{last.host.rpartition('-')[2]}"
    return (f"  {names}", "by name", _duties(first), first.expires or "")


def _group(node: NodePlan) -> str:
    return node.host.rpartition("-")[0]


def _duties(node: NodePlan) -> str:
    gpus = f" ({node.gpus.count} x {node.gpus.model})" if node.gpus else ""
    return (", ".join(sorted(node.duties)) or "-") + gpus


def _entry(node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "full_name": node.full_name,
        "place": node.place,
        "ground": str(node.ground),
        "duties": sorted(node.duties),
        "address": str(node.address) if node.address else None,
        "owner": node.owner,
        "expires": node.expires,
    }
