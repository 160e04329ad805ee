"""How a command of `bedplate node` comes to its machines: by the lock's keys, or as the operator's own files say."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from bedplate.errors import InputError, MachineError
from bedplate.hold import login_name
from bedplate.nodes.deployer import deployer
from bedplate.nodes.ssh_config import Login, Reached
from bedplate.nodes.way import Ways, own_ways, ways
from bedplate.plan import FleetPlan


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
