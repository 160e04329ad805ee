"""Which machines an operator means, by their names, their site, or all that always stand."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.nodes.ssh import FIRST
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import MARK, Ground, NodePlan, admin_keys, node_of, standing_nodes


def named(plan: FleetPlan, names: Iterable[str], catalog: Catalog) -> Iterator[NodePlan]:
    """Yield the machines of these names; InputError, with the nearest, for a name that the fleet does not have."""
    for name in names:
        yield node_of(plan, _whole(plan, name), catalog)


def of_sites(plan: FleetPlan, sites: Sequence[str]) -> Iterator[NodePlan]:
    """Yield the machines of these sites; InputError for a site that the fleet does not have."""
    known = [site.name for site in plan.sites]
    for name in sites:
        if name not in known:
            raise InputError(f"the fleet {plan.name} has no site {name}", fix=_one_of(name, known))
    yield from (node for node in standing_nodes(plan) if node.place in sites)


def check_groups(plan: FleetPlan, groups: Iterable[str]) -> None:
    """Raise InputError for a group that the fleet does not have."""
    known = list(dict.fromkeys(pool.group for pool in plan.pools))
    for name in groups:
        if name not in known:
            raise InputError(f"the fleet {plan.name} has no group {name}", fix=_one_of(name, known))


def once(nodes: Iterable[NodePlan]) -> tuple[NodePlan, ...]:
    """Return each machine once, in the order in which it came first."""
    return tuple({node.name: node for node in nodes}.values())


def _whole(plan: FleetPlan, name: str) -> str:
    """Return the name with its place, where the host name alone can mean one machine only."""
    if "." in name:
        return name
    found = [node.name for node in standing_nodes(plan) if node.host == name]
    return found[0] if len(found) == 1 else name


def _one_of(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"write {near}" if near else f"one of {', '.join(known)}" if known else "it has none"


_SCRIPT = Path(__file__).with_name("bootstrap.sh")


def bootstrap(node: NodePlan) -> str:
    """Return the script of a machine. Raises InputError for one of the cloud, or where nobody could log in."""
    if node.ground is Ground.CLOUD:
        raise InputError(
            f"{node.name} is a machine of the cloud", fix="its group starts it, and its first boot names it"
        )
    keys = admin_keys(node.accounts)
    if not keys:
        raise InputError("the fleet file has no administrator", fix="give somebody under `people` `admin: true`")
    words = {"NAME": node.name, "FULL_NAME": node.full_name, "ACCOUNT": FIRST, "MARK": MARK, "KEYS": "\n".join(keys)}
    head = (f"{name}={quote(value)}" for name, value in words.items())
    return "\n".join(("#!/bin/sh", *head, _SCRIPT.read_text(encoding="utf-8")))
