"""A stand of test nodes: Debian 12 machines on this one, with the operator's desk before them.

Nodes of one stand reach one another and, by the desk, the world; stands reach nothing of each other. Everything is
taken down at the end; were this process killed, the nodes would shut down, and the next stand clears away the rest.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.netlab import Lab, LabHost
from tests.support.stand.desk import Desk
from tests.support.stand.fresh import ADMIN, make_key, prepared
from tests.support.stand.layer import baked
from tests.support.stand.machine import Machine
from tests.support.stand.node import Node
from tests.support.stand.overlay import mounted
from tests.support.stand.room import make_room
from tests.support.virtual.kernel import emulated
from tests.support.virtual.line import Line
from tests.support.virtual.machine import VirtualMachine, make_disk, plug

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
