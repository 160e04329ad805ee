"""The way to each machine: an ssh that believes nothing but the lock, or a configuration of the operator's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.nodes.event import Event, Kind, Trouble, trouble_of
from bedplate.nodes.host_key import known_hosts
from bedplate.nodes.introduction import introduction
from bedplate.nodes.order import Target
from bedplate.nodes.ssh_config import Login, Reached, ssh_config

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
