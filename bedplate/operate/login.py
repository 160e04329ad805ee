"""How workflows log in to machines: directly if a machine answers at its address, else through Session Manager.

`ssh_targets` returns the ssh command of each machine. A machine in the cloud that does not answer gets a ProxyCommand,
`bedplate ssh --proxy NAME`, which looks up its instance and starts a session when ssh connects.
"""

import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bedplate.catalog import load_catalog
from bedplate.errors import InputError, MachineError
from bedplate.files import login_name
from bedplate.nodes.host_keys import answering, check_plugin
from bedplate.nodes.ssh import (
    Login,
    NodeLocation,
    SshTargets,
    deploy_account,
    login_account,
    targets_of_config,
    write_ssh_config,
)
from bedplate.operate import Operator
from bedplate.operate.fleet import open_account
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import pool_node_name
from bedplate.plan.nodes import NodePlan, Platform, pool_node
from vpn.push import ssh_connection

if TYPE_CHECKING:
    from bedplate.account.machines import LiveMachine


def ssh_targets(folder: Path, plan: FleetPlan, machines: Sequence[NodeLocation], operator: Operator) -> SshTargets:
    """Return the ssh command for each machine. The configuration for ssh is written into the folder.

    Raises InputError for a missing file, and MachineError if ssh is not installed.
    """
    check_files_exist(operator.identity, operator.ssh_config)
    if operator.ssh_config:
        targets = targets_of_config(operator.ssh_config, machines, Login(operator.user, operator.identity))
    else:
        user = operator.user or deploy_account(plan.accounts, login_name())
        login = Login(user, operator.identity and operator.identity.absolute())
        keys = plan.record.host_keys
        targets = write_ssh_config(folder, tuple(_with_paths(operator, machines, keys)), keys, login)
    if targets.targets and not which("ssh"):
        raise MachineError("ssh is not installed", fix="install OpenSSH's client")
    return targets


@contextmanager
def ssh_commands(
    operator: Operator, plan: FleetPlan, nodes: Collection[NodePlan]
) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield the ssh command of each machine by name.

    Without a recorded host key, a machine is reached by the operator's own ssh settings.
    """
    with TemporaryDirectory(prefix="bedplate-") as folder:
        targets = ssh_targets(Path(folder), plan, [NodeLocation(node) for node in nodes], operator).targets
        commands = {target.node.name: target.argv for target in targets}
        yield {node.name: commands.get(node.name) or ssh_connection(node.name).argv for node in nodes}


def check_files_exist(*files: Path | None) -> None:
    """Raise InputError for a file that does not exist. Devices such as /dev/null are valid: ssh reads them."""
    for file in filter(None, files):
        if not file.exists():
            raise InputError("no such file", where=str(file), fix="name an existing file")
        if file.is_dir():
            raise InputError("is a folder", where=str(file), fix="name a file")


def _with_paths(operator: Operator, machines: Sequence[NodeLocation], keys: Iterable[str]) -> Iterator[NodeLocation]:
    """Yield the machines; those with a key that only Session Manager reaches get a proxy."""
    in_cloud = [machine for machine in machines if is_in_cloud(machine) and machine.node.name in keys]
    hosts = answering({machine.host for machine in in_cloud})
    silent = [machine for machine in in_cloud if machine.host not in hosts]
    if silent and (missing := _missing_plugin()):
        names = ", ".join(machine.node.name for machine in silent)
        operator.notify([f"note: {names} not reached directly, and {missing.what}", f"  fix  {missing.fix}"])
        silent = []
    for machine in machines:
        yield with_proxy(machine, operator.fleet) if machine in silent else machine


def _missing_plugin() -> MachineError | None:
    try:
        check_plugin()
    except MachineError as error:
        return error
    return None


def is_in_cloud(machine: NodeLocation) -> bool:
    """Return whether Session Manager can reach a machine."""
    return machine.node.platform is Platform.CLOUD


def with_proxy(machine: NodeLocation, fleet: Path) -> NodeLocation:
    """Return a machine with the ProxyCommand that connects to it when ssh starts."""
    # -P: no module of the folder in which ssh runs.
    python, command = (sys.executable, "-P", "-m"), ("bedplate", "ssh", "--proxy", machine.node.name)
    return replace(machine, proxy=proxy_command((*python, *command, "--fleet", str(fleet.absolute()))))


def proxy_command(argv: Sequence[str]) -> str:
    """Return a command as the value of ProxyCommand: for a shell, and without expansion of %."""
    return shlex.join(argv).replace("%", "%%")


def interactive_login(operator: Operator, plan: FleetPlan) -> Login:
    """Return the login name and key. An operator who is not in the fleet file is told so."""
    own = login_name()
    name = operator.user or login_account(plan.accounts, own)
    if not operator.user and name != own:
        note = f"note: no person named {own} in the fleet file; ssh logs in as {name} (change it with --user)"
        operator.notify([note])
    return Login(name, operator.identity and operator.identity.absolute())


IN_SERVICE = "InService"


def running_machines(plan: FleetPlan, groups: Sequence[str]) -> Iterator[NodeLocation]:
    """Yield the machines of these groups that AWS reports as in service."""
    # Slow: they import boto3.
    from bedplate.account.client import require_all
    from bedplate.account.machines import read_machines

    answers = require_all(read_machines(open_account(plan), plan), "nothing was done")
    for machine in (machine for region in answers.values() for machine in region):
        if machine.group in groups and machine.state == IN_SERVICE and machine.address:
            yield location_of(plan, machine)


def location_of(plan: FleetPlan, machine: "LiveMachine") -> NodeLocation:
    """Return a machine of a pool; without a registered name it has that of its group and its instance."""
    name = machine.name or pool_node_name(machine.group, machine.instance, machine.region)
    pool = next(pool for pool in plan.pools if (pool.name, pool.region) == (machine.pool, machine.region))
    node = pool_node(plan, pool, name, load_catalog())
    return NodeLocation(node, machine.address, None if machine.name else machine.pool)
