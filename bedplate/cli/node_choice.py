"""Which machines, and which of their roles, a command of `bedplate node` is about."""

from collections.abc import Collection, Iterator, Sequence

from bedplate.catalog import load_catalog
from bedplate.catalog.nearest import nearest
from bedplate.cli.output import tell
from bedplate.errors import InputError
from bedplate.nodes.choice import check_groups, named, of_sites, once
from bedplate.nodes.ssh_config import Reached
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import pool_node, standing_nodes

IN_SERVICE = "InService"


def chosen(
    plan: FleetPlan, names: Sequence[str], groups: Sequence[str], sites: Sequence[str], *, every: bool
) -> tuple[Reached, ...]:
    """Return the machines that are asked for, each once; InputError where none is, or for one that there is not."""
    check_groups(plan, groups)
    found = [*named(plan, names, load_catalog()), *of_sites(plan, sites), *(standing_nodes(plan) if every else ())]
    if not (names or groups or sites or every):
        raise InputError(
            "no machine is named", fix="name machines, or --site, --group, --all; see `bedplate node list`"
        )
    serving = tuple(_of_groups(plan, groups)) if groups else ()
    if groups and not serving:
        tell([f"note: no machine of {', '.join(groups)} serves now"])
    return (*(Reached(node) for node in once(found)), *serving)


def roles_chosen(asked: Collection[str], machines: Sequence[Reached]) -> frozenset[str] | None:
    """Return the roles asked for, None for all; InputError for one that none of the machines has."""
    if not asked:
        return None
    from bedplate.nodes.audit import roles_checked
    from roles.catalog import names_of

    # Where no machine of a group serves, a name is still one of a role.
    known = sorted({name for each in machines for name in names_of(each.node)}) or roles_checked()
    for name in asked:
        if name not in known:
            near = nearest(name, known)
            fix = f"write {near}" if near else f"one of {', '.join(known)}"
            raise InputError(f"none of these machines has a role {name}", fix=fix)
    return frozenset(asked)


def _of_groups(plan: FleetPlan, groups: Sequence[str]) -> Iterator[Reached]:
    """Yield the machines that serve in groups now, where AWS says that they are; raises as the account does."""
    from bedplate.account.door import check_account, open_door
    from bedplate.account.machines import machines
    from bedplate.account.regions import every_answer

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    pools = {(pool.name, pool.region): pool for pool in plan.pools}
    for each in (one for told in every_answer(machines(door, plan), "nothing was done").values() for one in told):
        if each.group in groups and each.state == IN_SERVICE and each.address:
            # EC2's own name, for a machine that has claimed none of the fleet's.
            name = each.name or f"ip-{str(each.address).replace('.', '-')}.{each.region}"
            node = pool_node(plan, pools[each.pool, each.region], name, load_catalog())
            yield Reached(node, each.address, None if each.name else each.pool)
