"""Test nodes: boot, run commands by console and SSH, disconnect, crash and restart."""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, create_connection, socket
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self

from tests.testlab.machines.container import Machine, mounted
from tests.testlab.machines.layers import baked, remove_leftovers
from tests.testlab.machines.virtual import SshConnection, VirtualMachine, connect_tap, emulated, make_disk
from tests.testlab.machines.workstation import ADMIN, Workstation, make_key, prepare_root
from tests.testlab.network.netlab import Lab, LabHost

# CPU times of each process and of its finished children: proc(5), stat.
_TICKS = "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk '{ sum += $12 + $13 + $14 + $15 } END { print sum }'"


@dataclass(frozen=True)
class Node:
    """A booted test node; `name` is its name in the plan, `host_key` its public key as ssh-keygen prints it."""

    name: str
    address: IPv4Address
    host_key: str
    machine: Machine | VirtualMachine
    workstation: Workstation
    ssh_config: Path

    @property
    def root(self) -> Path:
        """The root folder of the node on this machine."""
        return self.machine.root

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script as root on the console, which does not need SSH. Raises CommandError."""
        return self.machine.run(script, seconds)

    def ssh(self, command: str, user: str = "ubuntu", seconds: float = 60) -> CompletedProcess[str]:
        """Run a command over SSH from the workstation."""
        return self.workstation.run("ssh", "-F", str(self.ssh_config), "-l", user, self.name, command, seconds=seconds)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all programs since the boot."""
        return int(self.run(_TICKS)) / os.sysconf("SC_CLK_TCK")

    def cut(self) -> None:
        """Drop all packets from and to the node."""
        self.workstation.cut(self.address)

    def heal(self) -> None:
        """Stop dropping packets."""
        self.workstation.heal(self.address)

    def restart(self) -> None:
        """Shut the node down cleanly, and boot it."""
        self.machine.halt()
        self.machine.boot()

    def crash(self) -> None:
        """Simulate a power loss, and boot the node; data that was not synced is lost."""
        self.machine.crash()
        self.machine.boot()

    def stop(self) -> None:
        """Shut the node down cleanly; `machine.boot` starts it again."""
        self.machine.halt()


# Creates a machine with its own kernel from a disk, a network, an address and an SSH connection.
MachineFactory = Callable[[Path, LabHost, IPv4Address, SshConnection], VirtualMachine]
_WORKSTATION = IPv4Address("192.168.43.254")


class NodeLab:
    """A lab of test nodes: boots nodes on read-only `layers` (bare, baked), and connects them to a workstation."""

    def __init__(self, layers: tuple[Path, ...] | None = None, address: IPv4Address = _WORKSTATION) -> None:
        remove_leftovers()
        self._open = ExitStack()
        self.network = Lab("node")
        self._open.callback(self.network.close)
        self._layers = layers or baked()
        self.workstation = Workstation(self.network, address)
        self._open.callback(self.workstation.close)
        self.folder = self.network.folder
        self.key = self.folder / "operator"
        self.ssh_config = self.folder / "ssh_config"
        self.known_hosts = self.folder / "known_hosts"
        self.public = make_key(self.key, "operator")
        self.nodes: dict[str, Node] = {}
        self.hosts: dict[str, LabHost] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def boot(self, name: str, address: IPv4Address | str, *aliases: str, image: tuple[Path, ...] | None = None) -> Node:
        """Boot a fresh node; `aliases` are more names under which the workstation finds it.

        `image` are the layers of another root: its cloud-init makes the host keys.
        """
        ip_address = IPv4Address(address)
        host = self.network.host(name)
        self.workstation.wire(host, ip_address)
        root = self._open.enter_context(mounted(image or self._layers, host.folder / "disk"))
        machine = Machine(root, host.namespace, host.folder / "console.log")
        prepare_root(root, self.public, ip_address, self.workstation.address)
        if image:
            for key in (root / "etc/ssh").glob("ssh_host_*_key*"):
                key.unlink()
        self._open.callback(machine.crash)
        machine.boot()
        host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().strip()
        node = Node(name, ip_address, host_key, machine, self.workstation, self.ssh_config)
        self._register(node, (name, *aliases))
        self.nodes[name], self.hosts[name] = node, host
        return node

    def replace(self, name: str) -> Node:
        """Boot a fresh node in place of one that has ended, at its address; nobody knows its host key."""
        old, host = self.nodes[name], self.hosts[name]
        number = len(list(host.folder.glob("*console.log")))
        root = self._open.enter_context(mounted(self._layers, host.folder / f"{number}-disk"))
        machine = Machine(root, host.namespace, host.folder / f"{number}-console.log")
        prepare_root(root, self.public, old.address, self.workstation.address)
        self._open.callback(machine.crash)
        machine.boot()
        host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().strip()
        self.nodes[name] = replace(old, machine=machine, host_key=host_key)
        return self.nodes[name]

    def move(self, name: str, factory: MachineFactory = emulated) -> Node:
        """Shut a node down, and start it with its own kernel, without waiting for the boot."""
        node, host = self.nodes[name], self.hosts[name]
        node.stop()
        disk = host.folder / "disk.img"
        make_disk(disk, node.root)
        connect_tap(host)
        connection = SshConnection(self.workstation, self.ssh_config, name, host.folder)
        machine = factory(disk, host, node.address, connection)
        self._open.callback(machine.crash)
        machine.start()
        self.nodes[name] = replace(node, machine=machine)
        return self.nodes[name]

    def close(self) -> None:
        """Shut all nodes down, the newest first, and remove the lab."""
        self._open.close()

    def _register(self, node: Node, names: tuple[str, ...]) -> None:
        for name in names:
            self.workstation.resolve(name, node.address)
        kind, key, *_ = node.host_key.split()
        with self.known_hosts.open("a", encoding="utf-8") as hosts_file:
            hosts_file.write(f"{','.join((*names, str(node.address)))} {kind} {key}\n")
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


def bind_socket(host: LabHost, address: IPv4Address | str, port: int) -> socket:
    """Return a socket bound to an address of a lab host. Raises OSError."""
    return _in_namespace(host, _bind_socket, (str(address), port))


def connect_socket(host: LabHost, address: IPv4Address | str, port: int) -> socket:
    """Return a connection of a lab host to an address. Raises OSError."""
    return _in_namespace(host, create_connection, (str(address), port))


def _in_namespace(host: LabHost, make: Callable[[tuple[str, int]], socket], place: tuple[str, int]) -> socket:
    # setns changes the namespace of one thread, which ends here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_enter_namespace, Path("/run/netns", host.namespace)).result()
        return thread.submit(make, place).result()


def _enter_namespace(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(namespace))


def _bind_socket(place: tuple[str, int]) -> socket:
    server = socket()
    server.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    server.bind(place)
    return server
