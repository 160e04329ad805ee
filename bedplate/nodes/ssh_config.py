"""A fragment of OpenSSH's configuration by which a fleet's machines are reached under the names of its plan.

Nothing is trusted but the keys of the known_hosts file that is written with it, and no machine is a hop to another:
whoever may log in comes from the VPN, a site or a node.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.errors import InputError
from bedplate.plan.node import NodePlan

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
