"""The machines and roles that a command of `bedplate node` acts on, and how ssh reaches the machines."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from bedplate.catalog import load_catalog
from bedplate.catalog.nearest import nearest
from bedplate.cli.output import notify
from bedplate.errors import InputError, MachineError
from bedplate.hold import login_name
from bedplate.nodes.audit import roles_checked
from bedplate.nodes.choice import check_groups, named, of_sites, once
from bedplate.nodes.ssh import Login, Reached, Ways, deployer, own_ways, ways
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import pool_node, standing_nodes

IN_SERVICE = "InService"


def select_machines(
    plan: FleetPlan, names: Sequence[str], groups: Sequence[str], sites: Sequence[str], *, every: bool
) -> tuple[Reached, ...]:
    """Return the selected machines, without duplicates. Raises InputError for an unknown name, or if none is given."""
    check_groups(plan, groups)
    if not (names or groups or sites or every):
        fix = "name machines, or pass --site, --group or --all; `bedplate node list` shows the names"
        raise InputError("no machine selected", fix=fix)
    nodes = [*named(plan, names, load_catalog()), *of_sites(plan, sites), *(standing_nodes(plan) if every else ())]
    running = tuple(_running_machines(plan, groups)) if groups else ()
    if groups and not running:
        notify([f"note: no running machine in {', '.join(groups)}"])
    return (*(Reached(node) for node in once(nodes)), *running)


def select_roles(roles: Collection[str], machines: Sequence[Reached]) -> frozenset[str] | None:
    """Return the selected roles, or None for all. Raises InputError for a role that none of the machines has."""
    if not roles:
        return None
    # Slow: it imports every role.
    from roles.catalog import names_of

    # A group without running machines has no roles to compare with: any role is valid.
    available = sorted({name for machine in machines for name in names_of(machine.node)}) or roles_checked()
    for role in roles:
        if role not in available:
            closest = nearest(role, available)
            fix = f"write {closest}" if closest else f"write one of {', '.join(available)}"
            raise InputError(f"none of these machines has the role {role}", fix=fix)
    return frozenset(roles)


def _running_machines(plan: FleetPlan, groups: Sequence[str]) -> Iterator[Reached]:
    """Yield the machines of these groups that AWS reports as in service."""
    # Slow: they import boto3.
    from bedplate.account.client import every_answer
    from bedplate.account.machines import machines
    from bedplate.cli.account import open_account

    answers = every_answer(machines(open_account(plan), plan), "nothing was done")
    pools = {(pool.name, pool.region): pool for pool in plan.pools}
    for machine in (machine for region in answers.values() for machine in region):
        if machine.group in groups and machine.state == IN_SERVICE and machine.address:
            # A machine that has not registered a name of the fleet has the host name that EC2 gives it.
            name = machine.name or f"ip-{str(machine.address).replace('.', '-')}.{machine.region}"
            node = pool_node(plan, pools[machine.pool, machine.region], name, load_catalog())
            yield Reached(node, machine.address, None if machine.name else machine.pool)


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The options by which an operator says how to log in: user and private key, or an OpenSSH configuration."""

    user: str | None = None
    identity: Path | None = None
    config: Path | None = None


def ssh_ways(folder: Path, plan: FleetPlan, machines: Sequence[Reached], options: SshOptions) -> Ways:
    """Return the ssh command for each machine. The configuration for ssh is written into the folder.

    Raises InputError for a missing file, and MachineError if ssh is not installed.
    """
    check_files_exist(options.identity, options.config)
    if options.config:
        found = own_ways(options.config, machines, Login(options.user, options.identity))
    else:
        user = options.user or deployer(plan.accounts, login_name())
        login = Login(user, options.identity and options.identity.absolute())
        found = ways(folder, machines, plan.record.host_keys, login)
    if found.targets and not which("ssh"):
        raise MachineError("ssh is not installed", fix="install OpenSSH's client")
    return found


def check_files_exist(*files: Path | None) -> None:
    """Raise InputError for a file that does not exist. Devices such as /dev/null are valid: ssh reads them."""
    for file in filter(None, files):
        if not file.exists():
            raise InputError("no such file", where=str(file), fix="name an existing file")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix="name a file")
