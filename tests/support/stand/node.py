"""A booted test node as tests see it: its console, its SSH, its wire and its power."""

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import CompletedProcess

from tests.support.stand.desk import Desk
from tests.support.stand.machine import Machine
from tests.support.virtual.machine import VirtualMachine


@dataclass(frozen=True)
class Node:
    """A machine under test; `name` is what the plan calls it, `host_key` its public key as ssh-keygen prints it."""

    name: str
    address: IPv4Address
    host_key: str
    machine: Machine | VirtualMachine
    desk: Desk
    ssh_config: Path

    @property
    def root(self) -> Path:
        """Its root, as this machine sees it: what is written here is on the node."""
        return self.machine.root

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script at its console, as root: works whatever became of its SSH. Raises CommandError."""
        return self.machine.run(script, seconds)

    def ssh(self, command: str, user: str = "ubuntu", seconds: float = 60) -> CompletedProcess[str]:
        """Run a command over SSH, as the operator would."""
        return self.desk.run("ssh", "-F", str(self.ssh_config), "-l", user, self.name, command, seconds=seconds)

    def cut(self) -> None:
        """Lose every packet from and to it."""
        self.desk.cut(self.address)

    def heal(self) -> None:
        """Let its packets pass again."""
        self.desk.heal(self.address)

    def restart(self) -> None:
        """Shut it down in order, and boot it."""
        self.machine.halt()
        self.machine.boot()

    def crash(self) -> None:
        """Take its power away, and boot it: what was not written is lost."""
        self.machine.crash()
        self.machine.boot()

    def stop(self) -> None:
        """Shut it down in order, for good or until `machine.boot`."""
        self.machine.halt()
