"""OpenSSH configuration for the fleet's machines, their selection by name, site or group, and ssh commands.

Only the keys of the known_hosts file written with it are trusted. There are no jump hosts: connections come from the
VPN, a site or a node, or through the ProxyCommand of a machine.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.catalog.catalog import Catalog
from bedplate.errors import BedplateError, InputError, nearest_fix
from bedplate.nodes.apply import Event, NodeError, NodeErrorKind, Target, error_event
from bedplate.nodes.host_keys import known_hosts, trust_instructions
from bedplate.nodes.remote import run
from bedplate.plan.fleet import Accounts, FleetPlan
from bedplate.plan.nodes import NodePlan, NodeRole, find_node, permanent_nodes


def nodes_by_name(plan: FleetPlan, names: Iterable[str], catalog: Catalog) -> Iterator[NodePlan]:
    """Yield the machines of these names; InputError, with the nearest name, for an unknown one."""
    for name in names:
        yield find_node(plan, _with_place(plan, name), catalog)


def nodes_of_sites(plan: FleetPlan, sites: Sequence[str]) -> Iterator[NodePlan]:
    """Yield the machines of these sites; InputError for an unknown site."""
    for name in sites:
        if name not in plan.sites_by_name:
            fix = nearest_fix(name, plan.sites_by_name) if plan.sites_by_name else "the fleet has none"
            raise InputError(f"the fleet {plan.name} has no site {name}", fix=fix)
    yield from (node for node in permanent_nodes(plan) if node.place in sites)


def check_groups(plan: FleetPlan, groups: Iterable[str]) -> None:
    """Raise InputError for an unknown group."""
    group_names = list(dict.fromkeys(pool.group for pool in plan.pools))
    for name in groups:
        if name not in group_names:
            fix = nearest_fix(name, group_names) if group_names else "the fleet has none"
            raise InputError(f"the fleet {plan.name} has no group {name}", fix=fix)


def unique_nodes(nodes: Iterable[NodePlan]) -> tuple[NodePlan, ...]:
    """Return the machines without duplicates, in order."""
    return tuple({node.name: node for node in nodes}.values())


def _with_place(plan: FleetPlan, name: str) -> str:
    """Return the name with its place, if only one permanent machine has that host name."""
    if "." in name:
        return name
    matches = [node.name for node in permanent_nodes(plan) if node.host == name]
    return matches[0] if len(matches) == 1 else name


FILE_HEADER = "# Written by `bedplate node ssh-config`: a change by hand is lost when it is written anew."
"""The first line of every generated file; a file with another first line is never overwritten."""

# Characters that would end a name in a line of the configuration, or start a new line.
_NO_USER = re.compile(r"""[\s"'#]|[^\x20-\x7e]|^-|^$""")
# Characters that end a quoted path, and the start of a variable expansion, which cannot be escaped.
_NO_PATH = re.compile(r"""["\x00-\x1f\x7f]|\$\{""")


@dataclass(frozen=True, slots=True)
class Login:
    """The user and the key of a login; without them, ssh's defaults. `connect_timeout` is in seconds.

    InputError for a user name that the configuration cannot express.
    """

    user: str | None = None
    identity: Path | None = None
    connect_timeout: int = 10

    def __post_init__(self) -> None:
        """Refuse a user name that ssh would parse differently."""
        if self.user is not None and _NO_USER.search(self.user):
            raise InputError(f"{self.user!r} is not a valid user name", fix="use the account name on the machine")


@dataclass(frozen=True, slots=True)
class NodeLocation:
    """A machine and its address; None resolves its name by DNS. `pool` is that of a machine without a registered name.

    `proxy` is the ProxyCommand of ssh, for a machine without a network path to it.
    """

    node: NodePlan
    address: IPv4Address | None = None
    pool: str | None = None
    proxy: str | None = None

    @property
    def host(self) -> str:
        """The address, or the name that DNS resolves."""
        return str(self.address or self.node.address or self.node.full_name)


def ssh_config(machines: Iterable[NodeLocation], known_hosts: Path, login: Login) -> str:
    """Return the configuration; a host name that is unique also works without its place."""
    locations = tuple(machines)
    count = Counter(location.node.host for location in locations)
    stanzas = (_stanza(_names(location.node, count), _machine_settings(location)) for location in locations)
    names = [name for location in locations for name in _names(location.node, count)]
    common = (_stanza(names, _common_settings(known_hosts, login)),) if locations else ()
    return "\n".join((FILE_HEADER, *stanzas, *common))


def _names(node: NodePlan, count: Counter[str]) -> list[str]:
    short = [node.host] if count[node.host] == 1 else []
    return [*short, node.name, node.full_name]


def _machine_settings(location: NodeLocation) -> Iterator[tuple[str, str]]:
    yield "HostName", location.host
    yield "HostKeyAlias", location.node.full_name
    if location.proxy:
        yield "ProxyCommand", location.proxy


def _common_settings(known_hosts: Path, login: Login) -> Iterator[tuple[str, str]]:
    if login.user:
        yield "User", login.user
    if login.identity:
        yield "IdentityFile", _quoted(login.identity)
        yield "IdentitiesOnly", "yes"
    yield "UserKnownHostsFile", _quoted(known_hosts)
    yield "GlobalKnownHostsFile", "none"
    yield "StrictHostKeyChecking", "yes"
    # DNS answers can be forged on the network; only `node trust` reads the records, through the AWS API (ADR 8).
    yield "VerifyHostKeyDNS", "no"
    # Additional keys that a server offers have not been verified.
    yield "UpdateHostKeys", "no"
    yield "ConnectTimeout", str(login.connect_timeout)
    yield "ServerAliveInterval", "5"
    yield "ServerAliveCountMax", "3"


def _quoted(path: Path) -> str:
    """Return a quoted path without expansion by ssh; InputError if it cannot be quoted."""
    if _NO_PATH.search(str(path)):
        fix = 'use a path without ", ${ and control characters'
        raise InputError("ssh's configuration cannot express this path", where=str(path), fix=fix)
    return '"{}"'.format(str(path).replace("%", "%%"))


def _stanza(names: Iterable[str], settings: Iterable[tuple[str, str]]) -> str:
    lines = (f"Host {' '.join(names)}", *(f"  {key} {value}" for key, value in settings))
    return "\n".join(lines) + "\n"


# No terminal, agent or X11 forwarding. Connections are not shared: the test that login still works needs a new one.
OPTIONS = (
    *("-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
    # A dead machine is detected within 30 s, regardless of the operator's configuration.
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=5"),
)
USER_CONFIG = "\nMatch all\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"
"""The end of a file for `ssh -F`: what it does not set comes from the user's own configuration."""


@dataclass(frozen=True, slots=True)
class SshTargets:
    """The ssh targets, and an event for each machine without a recorded host key."""

    targets: tuple[Target, ...]
    missing: tuple[Event, ...] = ()


def write_ssh_config(
    folder: Path, machines: Iterable[NodeLocation], keys: Mapping[str, tuple[str, ...]], login: Login
) -> SshTargets:
    """Write the configuration and known_hosts into a folder; machines without a recorded key are left out."""
    locations = tuple(machines)
    trusted = tuple(location for location in locations if keys.get(location.node.name))
    trusted_keys, config = folder / "known_hosts", folder / "ssh_config"
    trusted_keys.write_text(known_hosts((location.node for location in trusted), keys), encoding="utf-8")
    config.write_text(ssh_config(trusted, trusted_keys, login) + USER_CONFIG, encoding="utf-8")
    return SshTargets(
        tuple(_target(config, location) for location in trusted),
        tuple(_untrusted(location) for location in locations if location not in trusted),
    )


def targets_of_config(config: Path, machines: Iterable[NodeLocation], login: Login) -> SshTargets:
    """Return the targets with the operator's ssh configuration, which has each machine under its name in the plan."""
    options = [*(("-l", login.user) if login.user else ()), *(("-i", str(login.identity)) if login.identity else ())]
    return SshTargets(tuple(_target(config, location, *options) for location in machines))


def _target(config: Path, location: NodeLocation, *options: str) -> Target:
    return Target(location.node, ("ssh", "-F", str(config), *OPTIONS, *options, location.node.name))


def _untrusted(location: NodeLocation) -> Event:
    fix = trust_instructions(location.node)
    if location.pool and NodeRole.WORKER not in location.node.roles:
        fix = f"it has not registered its own name yet: `bedplate node logs {location.node.name}` shows its first boot"
    error = NodeError(NodeErrorKind.REFUSED, "its host key is not recorded", fix)
    return error_event(location.node.name, error)


def own_target(node: NodePlan) -> Target:
    """Return a machine as the operator's own ssh configuration reaches it."""
    return Target(node, ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", node.name))


def logged_in(target: Target) -> tuple[str, ...] | None:
    """Return the accounts that are logged in to a machine, sorted; None if it cannot be asked within 10 s."""
    try:
        lines = run(target, "who", timeout=10).splitlines()
    except BedplateError:
        return None
    return tuple(sorted({line.split()[0] for line in lines if line.strip()}))


INITIAL_ACCOUNT = "ubuntu"
"""The initial account of Ubuntu's images; the bootstrap script creates it on a site's machine."""


def login_account(accounts: Accounts, me: str) -> str:
    """Return the account for interactive logins: the operator's if it is in the file."""
    return me if any(person.name == me for person in accounts.people) else INITIAL_ACCOUNT
