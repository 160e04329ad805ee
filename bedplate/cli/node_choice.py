"""Which machines, and which of their roles, a command of `bedplate node` is about."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.catalog.nearest import nearest
from bedplate.cli.output import tell
from bedplate.errors import InputError, MachineError
from bedplate.hold import login_name
from bedplate.nodes.choice import check_groups, named, of_sites, once
from bedplate.nodes.ssh import Login, Reached, Ways, deployer, own_ways, ways
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
    from bedplate.account.client import check_account, every_answer, open_door
    from bedplate.account.machines import machines

    door = open_door()
    check_account(door, plan.account, plan.home.name)
    pools = {(pool.name, pool.region): pool for pool in plan.pools}
    for each in (one for told in every_answer(machines(door, plan), "nothing was done").values() for one in told):
        if each.group in groups and each.state == IN_SERVICE and each.address:
            # EC2's own name, for a machine that has claimed none of the fleet's.
            name = each.name or f"ip-{str(each.address).replace('.', '-')}.{each.region}"
            node = pool_node(plan, pools[each.pool, each.region], name, load_catalog())
            yield Reached(node, each.address, None if each.name else each.pool)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator says of the way: who logs in, with which key, or a configuration of OpenSSH."""

    user: str | None = None
    identity: Path | None = None
    config: Path | None = None


def ways_to(folder: Path, plan: FleetPlan, machines: Sequence[Reached], asked: Asked) -> Ways:
    """Return the way to each machine, what ssh reads written into a folder.

    Raises InputError for a missing file, MachineError where there is no ssh.
    """
    refuse_missing(asked.identity, asked.config)
    found = _ways(folder, plan, machines, asked)
    if found.targets and not which("ssh"):
        raise MachineError("there is no ssh here", fix="install OpenSSH's client")
    return found


def refuse_missing(*files: Path | None) -> None:
    """Raise InputError for a file that is named and is not there; ssh reads what is no plain one, /dev/null, too."""
    for file in filter(None, files):
        if file.is_dir() or not file.exists():
            what = "it is a folder" if file.is_dir() else "there is no such file"
            raise InputError(what, where=str(file), fix="name the file that there is")


def _ways(folder: Path, plan: FleetPlan, machines: Sequence[Reached], asked: Asked) -> Ways:
    if asked.config:
        return own_ways(asked.config, machines, Login(asked.user, asked.identity))
    login = Login(asked.user or deployer(plan.accounts, login_name()), asked.identity and asked.identity.absolute())
    return ways(folder, machines, plan.record.host_keys, login)


FleetOption = Annotated[Path, typer.Option("--fleet", metavar="FLEET", help="The fleet file.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Machines, as titan-01.cellar.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="G", help="Machines of a group that run.")]
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="S", help="All machines of a site.")]
Every = Annotated[bool, typer.Option("--all", help="All machines that always stand.")]
User = Annotated[str | None, typer.Option("--user", metavar="U", help="Who logs in; you if an admin, else ubuntu.")]
Identity = Annotated[Path | None, typer.Option("--identity", metavar="FILE", help="The private key to log in with.")]
Config = Annotated[
    Path | None, typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration and host keys.")
]
