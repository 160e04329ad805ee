"""Which machines a command of `bedplate node` is about."""

from collections.abc import Sequence

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.nodes.choice import check_groups, named, of_sites, once
from bedplate.nodes.ssh_config import Reached
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import standing_nodes


def chosen(
    plan: FleetPlan, names: Sequence[str], groups: Sequence[str], sites: Sequence[str], *, every: bool
) -> tuple[Reached, ...]:
    """Return the machines that are asked for, each once; InputError where none is, or for one that there is not."""
    check_groups(plan, groups)
    found = [*named(plan, names, load_catalog()), *of_sites(plan, sites), *(standing_nodes(plan) if every else ())]
    machines = tuple(Reached(node) for node in once(found))
    if not (names or groups or sites or every):
        raise InputError(
            "no machine is named", fix="name machines, or --site, --group, --all; see `bedplate node list`"
        )
    return machines
