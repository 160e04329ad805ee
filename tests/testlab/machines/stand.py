"""A booted test node as tests see it: its console, its SSH, its wire and its power."""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self

from tests.testlab.machines.container import Machine, mounted
from tests.testlab.machines.desk import ADMIN, Desk, make_key, prepared
from tests.testlab.machines.layers import baked, make_room
from tests.testlab.machines.virtual import Line, VirtualMachine, emulated, make_disk, plug
from tests.testlab.network.netlab import Lab, LabHost


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


# What makes a machine with a kernel of its own of a disk, a wire, an address and the way to it.
Mover = Callable[[Path, LabHost, IPv4Address, Line], VirtualMachine]
# What lets an admin with a public key into a root that is to boot; returns its public host key.
Preparer = Callable[[Path, str], str]
_DESK = IPv4Address("192.168.43.254")


class Stand:
    """Test nodes by name; `layers` are what their roots lie over (layer.bare, layer.baked), `desk` the operator's."""

    def __init__(self, layers: tuple[Path, ...] | None = None, desk: IPv4Address = _DESK) -> None:
        make_room()
        self._open = ExitStack()
        self._lab = Lab("stand")
        self._open.callback(self._lab.close)
        self._layers = layers or baked()
        self.desk = Desk(self._lab, desk)
        self._open.callback(self.desk.close)
        self.folder = self._lab.folder
        self.key = self.folder / "operator"
        self.ssh_config = self.folder / "ssh_config"
        self.known_hosts = self.folder / "known_hosts"
        self.public = make_key(self.key, "operator")
        self.nodes: dict[str, Node] = {}
        self._hosts: dict[str, LabHost] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def boot(self, name: str, address: IPv4Address | str, *also: str, prepare: Preparer = prepared) -> Node:
        """Boot a machine, a fresh one unless prepared otherwise; `also` are more names by which the desk finds it."""
        at = IPv4Address(address)
        host = self._lab.host(name)
        self.desk.wire(host, at)
        root = self._open.enter_context(mounted(self._layers, host.folder / "disk"))
        machine = Machine(root, host.namespace, host.folder / "console.log")
        node = Node(name, at, prepare(root, self.public), machine, self.desk, self.ssh_config)
        self._introduce(node, (name, *also))
        self._open.callback(machine.crash)
        machine.boot()
        self.nodes[name], self._hosts[name] = node, host
        return node

    def move(self, name: str, moved: Mover = emulated) -> Node:
        """Shut a machine down, and start it with a kernel of its own; does not wait for its boot."""
        former, host = self.nodes[name], self._hosts[name]
        former.stop()
        disk = host.folder / "disk.img"
        make_disk(disk, former.root)
        plug(host)
        line = Line(self.desk, self.ssh_config, name, host.folder)
        machine = moved(disk, host, former.address, line)
        self._open.callback(machine.crash)
        machine.start()
        self.nodes[name] = replace(former, machine=machine)
        return self.nodes[name]

    def close(self) -> None:
        """Take everything down, the newest first."""
        self._open.close()

    def _introduce(self, node: Node, names: tuple[str, ...]) -> None:
        for name in names:
            self.desk.resolve(name, node.address)
        kind, key, *_ = node.host_key.split()
        with self.known_hosts.open("a", encoding="utf-8") as known:
            known.write(f"{','.join((*names, str(node.address)))} {kind} {key}\n")
        with self.ssh_config.open("a", encoding="utf-8") as config:
            config.write(self._stanza(node, names))

    def _stanza(self, node: Node, names: tuple[str, ...]) -> str:
        lines = (
            f"Host {' '.join(names)} {node.address}",
            f"HostName {node.address}",
            f"User {ADMIN}",
            f"IdentityFile {self.key}",
            f"UserKnownHostsFile {self.known_hosts}",
            *("IdentitiesOnly yes", "StrictHostKeyChecking yes", "BatchMode yes", "ConnectTimeout 10"),
        )
        return "\n  ".join(lines) + "\n"


_CLONE_NEWNET = 0x40000000


def bound(host: LabHost, address: IPv4Address | str, port: int) -> socket:
    """Return a socket that is bound at an address which the host has. Raises OSError."""
    # A namespace is a thread's own: this one ends with it.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_bound, Path("/run/netns", host.namespace), (str(address), port)).result()


def _bound(namespace: Path, at: tuple[str, int]) -> socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(namespace))
    made = socket()
    made.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    made.bind(at)
    return made
