"""How workflows log in to machines: directly if a machine answers at its address, else through Session Manager.

`ssh_targets` returns the ssh command of each machine. A machine in the cloud that does not answer gets a ProxyCommand,
`bedplate ssh --proxy NAME`, which looks up its instance and starts a session when ssh connects. The login and the check
of the host key are left to ssh. A host key that the lock does not hold is read through AWS and recorded at the first
login of `bedplate ssh`.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bedplate.errors import InputError, MachineError, PartialError
from bedplate.files import check_files_exist, login_name, write_whole
from bedplate.load import load_fleet
from bedplate.nodes.apply import Target
from bedplate.nodes.host_keys import answering, check_plugin, connect, relay, trust_instructions
from bedplate.nodes.ssh import (
    INITIAL_ACCOUNT,
    Login,
    NodeLocation,
    SshTargets,
    nodes_by_name,
    own_target,
    targets_of_config,
    write_ssh_config,
)
from bedplate.operate import Operator, open_account, plan_loaded, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import region_of_node
from bedplate.plan.nodes import NodePlan, Platform, pool_node

if TYPE_CHECKING:
    from bedplate.account.client import AwsClient
    from bedplate.account.machines import LiveMachine
    from bedplate.account.session import PluginCommand


def ssh_targets(folder: Path, plan: FleetPlan, machines: Sequence[NodeLocation], operator: Operator) -> SshTargets:
    """Return the ssh command for each machine. The configuration for ssh is written into the folder.

    Raises InputError for a missing file, and MachineError if ssh is not installed.
    """
    check_files_exist(operator.identity, operator.ssh_config)
    if operator.ssh_config:
        targets = targets_of_config(operator.ssh_config, machines, Login(operator.user, operator.identity))
    else:
        # A new machine of a site has the initial account only.
        find_user = _user_or_initial if any(map(is_in_cloud, machines)) else known_user
        login = Login(
            find_user(operator, plan, is_admin=True) or INITIAL_ACCOUNT,
            operator.identity and operator.identity.absolute(),
        )
        keys = plan.record.host_keys
        targets = write_ssh_config(folder, tuple(_with_paths(operator, machines, keys)), keys, login)
    if targets.targets and not which("ssh"):
        raise MachineError("ssh is not installed", fix="install OpenSSH's client")
    return targets


@contextmanager
def targets_by_name(operator: Operator, plan: FleetPlan, nodes: Collection[NodePlan]) -> Iterator[dict[str, Target]]:
    """Yield the ssh target of each machine by name.

    Without a recorded host key, a machine is reached by the operator's own ssh settings.
    """
    with TemporaryDirectory(prefix="bedplate-") as folder:
        targets = ssh_targets(Path(folder), plan, [NodeLocation(node) for node in nodes], operator).targets
        reached = {target.node.name: target for target in targets}
        yield {node.name: reached.get(node.name) or own_target(node) for node in nodes}


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


_USER = ".user"


def known_user(operator: Operator, plan: FleetPlan, *, is_admin: bool = False) -> str | None:
    """Return the operator's account: of --user, of the same name here, or remembered in the fleet folder; else None."""
    file = operator.fleet.with_name(_USER)
    remembered = ""
    with suppress(OSError, UnicodeDecodeError):
        remembered = file.read_text(encoding="utf-8").strip()
    names = {person.name for person in plan.accounts.people if person.admin or not is_admin}
    return operator.user or next((name for name in (login_name(), remembered) if name in names), None)


def require_user(operator: Operator, plan: FleetPlan, *, is_admin: bool = False) -> str:
    """Return the operator's account, ask for it if it is unknown, and remember one of another name than here.

    Raises InputError, with the administrators, if nobody can be asked.
    """
    own, kind = login_name(), "administrator" if is_admin else "person"
    admins = ", ".join(person.name for person in plan.accounts.people if person.admin) or "none"
    user = known_user(operator, plan, is_admin=is_admin)
    user = user or operator.ask(f"no {kind} named {own} in the fleet file; log in as (administrators: {admins})", None)
    if user is None:
        fix = f"add --user NAME, which is remembered in {_USER}; administrators: {admins}"
        raise InputError(f"no {kind} named {own} in the fleet file", fix=fix)
    if user != own and user in plan.accounts.uids:
        with suppress(MachineError):
            write_whole(operator.fleet.with_name(_USER), f"{user}\n".encode())
    return user


def _user_or_initial(operator: Operator, plan: FleetPlan, *, is_admin: bool = False) -> str:
    """Return the operator's account; the initial one, with a note, if it is unknown and nobody can be asked."""
    try:
        return require_user(operator, plan, is_admin=is_admin)
    except InputError as error:
        # Some commands that log in have no --user.
        fix = f"write your user name into {operator.fleet.with_name(_USER)}"
        operator.notify([f"note: {error.what}: ssh logs in as {INITIAL_ACCOUNT}", f"  fix  {fix}"])
        return INITIAL_ACCOUNT


def interactive_login(operator: Operator, plan: FleetPlan) -> Login:
    """Return the login name and key for OpenSSH settings."""
    return Login(_user_or_initial(operator, plan), operator.identity and operator.identity.absolute())


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
    pool = next(pool for pool in plan.pools if (pool.name, pool.region) == (machine.pool, machine.region))
    node = pool_node(plan, pool, machine.label, plan.catalog)
    return NodeLocation(node, machine.address, None if machine.name else machine.pool)


_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


def is_of_instance(plan: FleetPlan, name: str) -> bool:
    """Return whether only AWS knows the machine of a name: an instance id, or the name after an instance."""
    return bool(_INSTANCE.fullmatch(name)) or region_of_node(name.removesuffix(f".{plan.domain}")) is not None


def locate(plan: FleetPlan, name: str) -> NodeLocation:
    """Return the machine of a name or an instance id."""
    return _select(plan, name)[0]


def registered_name(operator: Operator, name: str) -> str:
    """Return the name for which the lock records the host key of a machine. Raises PartialError if it has none yet."""
    plan = plan_of(operator)
    location = locate(plan, name) if is_of_instance(plan, name) else None
    if location and location.pool:
        fix = f"`bedplate node logs {location.node.name}` shows its first boot"
        raise PartialError(f"{location.node.name} has not registered its own name yet", fix=fix)
    return location.node.name if location else name


_SSH_FAILED = 255
# A shell reports 128 + the number of the signal that killed a program.
_SIGNALLED = 128
HostKeys = Mapping[str, tuple[str, ...]]


def carry(operator: Operator, name: str) -> None:
    """Carry a connection to a machine over stdin and stdout. Does not return if the plugin carries it."""
    plan = _plan(operator)
    location, instance = _select(plan, name)
    if connection := connect(location.host):
        relay(connection, sys.stdin.fileno(), sys.stdout.fileno())
        return
    _check_session_possible(location)
    plugin = (instance or _instance(plan, location)).session()
    os.execvpe(plugin.argv[0], plugin.argv, {**os.environ, **plugin.environment})  # noqa: S606


def log_in(operator: Operator, name: str, command: Sequence[str]) -> int:
    """Log in to a machine, or run a command on it; return the exit status of ssh."""
    plan = _plan(operator)
    location, instance = _select(plan, name)
    check_files_exist(operator.identity)
    is_direct = _answers(location)
    keys: HostKeys = plan.record.host_keys
    if is_in_cloud(location) and (instance or not is_direct or location.node.name not in keys):
        instance = instance or _instance(plan, location)
        keys = _verified_keys(operator, plan, location, instance)
    elif location.node.name not in keys:
        what = f"the host key of {location.node.name} is not recorded"
        raise InputError(what, fix=trust_instructions(location.node))
    plugin = instance.session() if instance and not is_direct else None
    login = Login(require_user(operator, plan), operator.identity and operator.identity.absolute())
    return _run_ssh(operator, location, keys, plugin, command, login)


def _plan(operator: Operator) -> FleetPlan:
    # Warnings about the fleet file do not concern a login.
    return plan_loaded(load_fleet(operator.fleet))


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance of the fleet, with the client of its account."""

    client: "AwsClient"
    machine: "LiveMachine"

    def session(self) -> "PluginCommand":
        """Start a Session Manager session and return the command that carries it."""
        from bedplate.account.session import start_session

        return start_session(self.client, self.machine)


def _select(plan: FleetPlan, name: str) -> tuple[NodeLocation, Instance | None]:
    """Return the machine of a name, of a group that has only one, or of an instance id; with what AWS was asked for."""
    name = name.removesuffix(f".{plan.domain}")
    pools = [pool for pool in plan.pools if pool.group == name or is_of_instance(plan, name)]
    if not pools:
        (node,) = nodes_by_name(plan, [name], plan.catalog)
        return NodeLocation(node), None
    # Slow: they import boto3.
    from bedplate.account.client import require_all
    from bedplate.account.machines import read_claims, read_pool_machines
    from bedplate.account.session import RUNNING, running

    client = open_account(plan)
    answers = require_all(read_pool_machines(client, plan, pools, read_claims(client, plan)), "nothing was done")
    members = [
        machine
        for region in answers.values()
        for machine in region
        if name in (machine.instance, machine.group, machine.label)
    ]
    machines = [machine for machine in members if machine.state in RUNNING] or members[:1]
    if not machines:
        raise PartialError(f"no running machine: {name}", fix="`bedplate node list --live` shows running machines")
    if len(machines) > 1:
        names = ", ".join(sorted(machine.label for machine in machines))
        raise InputError(f"{name} has {len(machines)} running machines", fix=f"name one of {names}")
    machine = running(machines[0])
    return location_of(plan, machine), Instance(client, machine)


def _instance(plan: FleetPlan, location: NodeLocation) -> Instance:
    # Slow: it imports boto3.
    from bedplate.account.session import find_instance

    client = open_account(plan)
    return Instance(client, find_instance(client, plan, location.node))


def _answers(location: NodeLocation) -> bool:
    """Return whether a machine answers at its address; raise BedplateError if there is no other path to it."""
    if connection := connect(location.host):
        connection.close()
        return True
    _check_session_possible(location)
    return False


def _check_session_possible(location: NodeLocation) -> None:
    if not is_in_cloud(location):
        fix = "connect to the VPN, and check that the machine is on"
        raise PartialError(f"{location.node.name} does not answer at {location.host}", fix=fix)
    check_plugin()


def _verified_keys(operator: Operator, plan: FleetPlan, location: NodeLocation, instance: Instance) -> HostKeys:
    """Return the recorded host keys, with that of an instance that is new. Names of the fleet are recorded."""
    # Slow: it imports boto3.
    from bedplate.operate.trust import aws_host_key, record_aws_key

    name, machine, keys = location.node.name, instance.machine, plan.record.host_keys
    if name in keys and plan.record.instances.get(name, machine.instance) == machine.instance:
        return keys
    host_key = aws_host_key(plan, instance.client, machine)
    if machine.name:
        operator.notify([record_aws_key(operator, plan, machine, host_key)])
    return {**keys, name: (host_key.key,)}


def _run_ssh(  # noqa: PLR0913, PLR0917  what a login consists of
    operator: Operator,
    location: NodeLocation,
    keys: HostKeys,
    plugin: "PluginCommand | None",
    command: Sequence[str],
    login: Login,
) -> int:
    """Run ssh and return its exit status."""
    proxy, secret = (proxy_command(plugin.argv), plugin.environment) if plugin else (None, {})
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        write_ssh_config(Path(folder), [replace(location, proxy=proxy)], keys, login)
        argv = ("ssh", "-F", str(Path(folder) / "ssh_config"), location.node.name, *command)
        try:
            status = subprocess.run(argv, env={**os.environ, **secret}, check=False).returncode  # noqa: S603
        except FileNotFoundError:
            raise MachineError("ssh is not installed", fix="install OpenSSH's client") from None
    if status == _SSH_FAILED and not plugin and is_in_cloud(location):
        operator.notify([f"note: if its host key has changed: `bedplate node trust {location.node.name}`"])
    return status if status >= 0 else _SIGNALLED - status
