"""A fragment of OpenSSH's configuration by which a fleet's machines are reached under the names of its plan.

Nothing is trusted but the keys of the known_hosts file that is written with it, and no machine is a hop to another:
whoever may log in comes from the VPN, a site or a node.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.errors import InputError
from bedplate.nodes.apply import Event, Kind, Target, Trouble, trouble_of
from bedplate.nodes.host_keys import introduction, known_hosts
from bedplate.plan.fleet import Accounts
from bedplate.plan.nodes import NodePlan

MARK = "# Written by `bedplate node ssh-config`: a change by hand is lost when it is written anew."
"""Begins every fragment: what begins otherwise is somebody's own."""

# What would end a name in a line of a configuration, or begin another line.
_NO_USER = re.compile(r"""[\s"'#]|[^\x20-\x7e]|^-|^$""")
# Ends a quoted path, and what ssh would put the environment's in place of; the latter it lets nobody escape.
_NO_PATH = re.compile(r"""["\x00-\x1f\x7f]|\$\{""")


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in, with which key where not with any that ssh has; `connect_timeout` in seconds.

    InputError for a user whom no line of a configuration can name.
    """

    user: str | None = None
    identity: Path | None = None
    connect_timeout: int = 10

    def __post_init__(self) -> None:
        """Refuse what ssh would take for something else than a name."""
        if self.user is not None and _NO_USER.search(self.user):
            raise InputError(
                f"{self.user!r} is no name of a user", fix="write the account's name as it is on the machine"
            )


@dataclass(frozen=True, slots=True)
class Reached:
    """A machine, and the address at which it is; None where its name is to be resolved.

    `pool` is the one that it serves in, for a machine that the fleet has no name of its own for.
    """

    node: NodePlan
    address: IPv4Address | None = None
    pool: str | None = None


def ssh_config(machines: Iterable[Reached], known_hosts: Path, login: Login) -> str:
    """Return the fragment; a machine goes by its host name alone where no other has the same."""
    known = tuple(machines)
    count = Counter(each.node.host for each in known)
    stanzas = (_stanza(_names(each.node, count), _of_one(each)) for each in known)
    every = " ".join(name for each in known for name in _names(each.node, count))
    last = (_stanza(every.split(), _of_all(known_hosts, login)),) if known else ()
    return "\n".join((MARK, *stanzas, *last))


def _names(node: NodePlan, count: Counter[str]) -> list[str]:
    short = [node.host] if count[node.host] == 1 else []
    return [*short, node.name, node.full_name]


def _of_one(each: Reached) -> Iterator[tuple[str, str]]:
    address = each.address or each.node.address
    yield "HostName", str(address or each.node.full_name)
    yield "HostKeyAlias", each.node.full_name


def _of_all(known_hosts: Path, login: Login) -> Iterator[tuple[str, str]]:
    if login.user:
        yield "User", login.user
    if login.identity:
        yield "IdentityFile", _quoted(login.identity)
        yield "IdentitiesOnly", "yes"
    yield "UserKnownHostsFile", _quoted(known_hosts)
    yield "GlobalKnownHostsFile", "none"
    yield "StrictHostKeyChecking", "yes"
    # Whoever is on the way may answer for the DNS; what it tells counts when AWS itself has said so (ADR 8).
    yield "VerifyHostKeyDNS", "no"
    # A key that a server offers beside its own is not one that somebody has compared.
    yield "UpdateHostKeys", "no"
    yield "ConnectTimeout", str(login.connect_timeout)
    yield "ServerAliveInterval", "5"
    yield "ServerAliveCountMax", "3"


def _quoted(path: Path) -> str:
    """Return a path as one word that ssh expands nothing in; InputError where there is none."""
    if _NO_PATH.search(str(path)):
        raise InputError(
            "ssh's configuration cannot name this path", where=str(path), fix='use a path without " and ${'
        )
    return '"{}"'.format(str(path).replace("%", "%%"))


def _stanza(names: Iterable[str], settings: Iterable[tuple[str, str]]) -> str:
    lines = (f"Host {' '.join(names)}", *(f"  {key} {value}" for key, value in settings))
    return "\n".join(lines) + "\n"


# No terminal, no agent and no display go along: a machine has no need of them. Each connection is one of its own, for
# one that is to show that somebody can still log in must not ride on another.
_OPTIONS = (
    *("-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
    # A machine that dies in the middle is told within half a minute, whatever the operator's configuration says.
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=5"),
)
_USERS = "\nMatch all\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"


@dataclass(frozen=True, slots=True)
class Ways:
    """Where there is a way, and how it is told of each machine to which there is none."""

    targets: tuple[Target, ...]
    missing: tuple[Event, ...] = ()


def ways(folder: Path, machines: Iterable[Reached], keys: Mapping[str, tuple[str, ...]], login: Login) -> Ways:
    """Write what ssh is to read into a folder; a machine whose key is not recorded is left out."""
    every = tuple(machines)
    known = tuple(each for each in every if keys.get(each.node.name))
    believed, config = folder / "known_hosts", folder / "ssh_config"
    believed.write_text(known_hosts((each.node for each in known), keys), encoding="utf-8")
    config.write_text(ssh_config(known, believed, login) + _USERS, encoding="utf-8")
    return Ways(
        tuple(_target(config, each) for each in known),
        tuple(_untrusted(each) for each in every if each not in known),
    )


def own_ways(config: Path, machines: Iterable[Reached], login: Login) -> Ways:
    """Return the ways of a configuration of the operator's own, in which each machine has the name of the plan."""
    more = [*(("-l", login.user) if login.user else ()), *(("-i", str(login.identity)) if login.identity else ())]
    return Ways(tuple(_target(config, each, *more) for each in machines))


def _target(config: Path, each: Reached, *more: str) -> Target:
    return Target(each.node, ("ssh", "-F", str(config), *_OPTIONS, *more, each.node.name))


def _untrusted(each: Reached) -> Event:
    return trouble_of(each.node.name, Trouble(Kind.REFUSED, "its host key is not recorded", introduction(each.node)))


FIRST = "ubuntu"
"""The account that Ubuntu's images begin with, and that the first-boot script makes on a site's machine."""


def deployer(accounts: Accounts, me: str) -> str:
    """Return the account to log in with: the operator's own where the file makes them an administrator."""
    return me if any(person.name == me and person.admin for person in accounts.people) else FIRST


def visitor(accounts: Accounts, me: str) -> str:
    """Return the account to work as: the operator's own where the file has them."""
    return me if any(person.name == me for person in accounts.people) else FIRST
