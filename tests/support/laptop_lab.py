"""The fleet of examples/lab.yaml in namespaces: two gateways of laptops, a machine behind each, and laptops far away.

The gateways run the product's own text, under the rights that its unit gives. A plain wire between the gateways stands
for the transit gateway and the tunnels: what crosses it is no matter of these tests.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from signal import SIGKILL
from subprocess import run
from types import TracebackType
from typing import Self

from bedplate.plan.laptops import LaptopGateway, Transport
from tests.support.laptop_keys import LabKeys
from tests.support.laptop_plans import PUBLIC, RESOLVERS, lab_gateways
from tests.support.netlab import Lab, LabHost
from tests.support.netlab_program import LabProgram, until
from vpn.laptops.carry import Book, GatewayKeys, book_text
from vpn.laptops.guard import guard_rules
from vpn.laptops.profile import LaptopKeys, client_profile
from vpn.laptops.server import Folders, Laptop, server_conf
from vpn.laptops.unit import RIGHTS
from vpn.subject import Use

NODE, MACHINE = IPv4Address("10.64.32.10"), IPv4Address("192.168.40.21")
MACHINE_NAME, NODE_NAME = "titan-01.cellar.lab.internal", "workbench-cpu-1.us-west-2.lab.internal"
# What must never be seen on a wire of the internet: the plan's addresses in a packet's own header.
CLEAR = "net 10.64.0.0/10 or net 192.168.40.0/22"
PLACES = ("us-west-2", "cellar")
NOBODY, NOGROUP = 65534, 65534
_ROOT = Path(__file__).parents[2]


@dataclass
class GatewayHost:
    """A gateway: its daemons, and the keeper beside them."""

    host: LabHost
    gateway: LaptopGateway
    daemons: dict[Transport, LabProgram] = field(default_factory=dict)

    @property
    def folders(self) -> Folders:
        """Where its settings and its sockets lie."""
        return Folders(PurePosixPath(self.host.folder / "settings"), PurePosixPath(self.host.folder / "sockets"))

    def start(self, *transports: Transport, env: Mapping[str, str] | None = None) -> None:
        """Start daemons, of both transports where none is named, and wait until they serve; `env` is for them alone."""
        own = " ".join(f"{name}={value}" for name, value in (env or {}).items())
        for transport in transports or tuple(Transport):
            self._start(transport, own)

    def _start(self, transport: Transport, own: str) -> None:
        conf = f"{self.folders.settings}/{transport}.conf"
        log = f"{transport}.log"
        (self.host.folder / log).write_text("")
        if before := self.daemons.get(transport):
            before.end(SIGKILL)
        program = self.host.start(
            "sh", "-c", _START, conf, str(self.host.folder / "tun"), log=log, env={"FOR_THE_DAEMON": own}
        )
        self.daemons[transport] = program
        until(lambda: "Initialization Sequence Completed" in program.told, 20, f"{conf} does not serve")

    def keeper(self, *command: str, told: str | None = None) -> str:
        """Ask the keeper, as an operator's machine does over SSH."""
        places = ["--settings", str(self.folders.settings), "--sockets", str(self.folders.sockets), "--owner", "nobody"]
        return self.host.run("/usr/bin/python3", "-I", "-c", _KEEPER, str(_ROOT / "vpn"), *places, *command, told=told)

    def log(self, transport: Transport = Transport.UDP) -> str:
        """Return what a daemon said since it was started."""
        return self.daemons[transport].told


@dataclass
class LaptopHost:
    """Somebody's laptop, somewhere on the internet."""

    host: LabHost
    name: str
    client: LabProgram | None = None

    def connect(self, profile: str, *more: str, env: Mapping[str, str] | None = None) -> LabProgram:
        """Start the stock client on a profile, in place of what ran before."""
        self.end()
        file = self.host.folder / "profile.ovpn"
        file.write_text(profile)
        log = f"client-{len(self.host.programs)}.log"
        self.client = self.host.start("openvpn", "--config", str(file), *more, log=log, env=env)
        return self.client

    @property
    def profile(self) -> str:
        """The profile that the client was last started on."""
        return (self.host.folder / "profile.ovpn").read_text()

    def end(self) -> None:
        """End the client without a word."""
        if self.client is not None:
            self.client.end(SIGKILL)

    def wait(self, seconds: float = 20) -> None:
        """Wait until the client is connected."""
        client = self.client
        assert client is not None
        until(lambda: "Initialization Sequence Completed" in client.told, seconds, f"{self.name} does not get in")


class LaptopLab:
    """Everything of one laboratory; `laptops` are the devices that the book lets in."""

    def __init__(self, name: str, *names: str) -> None:
        self._lab = Lab(name)
        self.keys = LabKeys()
        self.devices = tuple(Laptop(each, slot) for slot, each in enumerate(names))
        self.net = self._lab.host("net")
        self.node, self.machine = self._lab.host("node"), self._lab.host("machine")
        self.gateways = {
            gateway.place: GatewayHost(self._lab.host(f"gw-{gateway.place}"), gateway) for gateway in lab_gateways()
        }
        self._lay()
        for gateway in self.gateways.values():
            self._furnish(gateway)
        self.laptops = {each: self._laptop(number, each) for number, each in enumerate(names)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # At once: who is asked to go says goodbye for a second.
        for laptop in self.laptops.values():
            laptop.end()
        for gateway in self.gateways.values():
            for daemon in gateway.daemons.values():
                daemon.end(SIGKILL)
        self._lab.close()

    def profile(self, name: str, keys: LaptopKeys | None = None) -> str:
        """Return the profile of a laptop, of its own keys where no others are given."""
        every = tuple(each.gateway for each in self.gateways.values())
        return client_profile(every, name, keys or self.keys.laptop(name))

    def send(self, place: str, book: Book | None = None, *cut: str) -> Mapping[str, object]:
        """Send a gateway the book: of everybody, with the next list, where no other is given."""
        gateway = self.gateways[place]
        text = book_text(gateway.gateway, book or Book(self.keys.revocations(), self.devices), cut)
        told: Mapping[str, object] = json.loads(gateway.keeper("take", told=text))
        return told

    def identify(self, place: str, use: Use, name: str) -> Mapping[str, object]:
        """Send a gateway the book of everybody, with a new certificate."""
        keys = GatewayKeys(self.keys.trusted, *self.keys.pair(name, use), self.keys.hidden)
        return self.send(place, Book(self.keys.revocations(), self.devices, {place: keys}))

    def impersonate(self, place: str, use: Use, name: str) -> None:
        """Give a gateway a certificate that no keeper would take, and start it over UDP."""
        gateway = self.gateways[place]
        for file, text in zip(("server.crt", "server.key"), self.keys.pair(name, use), strict=True):
            Path(gateway.folders.settings / file).write_text(text)
        gateway.start(Transport.UDP)

    def _lay(self) -> None:
        """Lay the wires: each gateway to the internet, to what is behind it, and to the other."""
        self.net.forward()
        west, gate = (self.gateways[place].host for place in PLACES)
        self._lab.wire((west, "wan0", f"{PUBLIC}/24"), (self.net, "west", "52.1.2.1/24"))
        self._lab.wire((gate, "wan0", "8.20.30.40/24"), (self.net, "gate", "8.20.30.1/24"))
        self._lab.wire((west, "lan0", "10.64.0.4/16"), (self.node, "lan0", f"{NODE}/16"))
        self._lab.wire((gate, "lan0", "192.168.40.1/22"), (self.machine, "lan0", f"{MACHINE}/22"))
        self._lab.wire((west, "links0", "169.254.9.1/30"), (gate, "links0", "169.254.9.2/30"))
        for host, way in (
            (west, "52.1.2.1"),
            (gate, "8.20.30.1"),
            (self.node, "10.64.0.4"),
            (self.machine, "192.168.40.1"),
        ):
            host.forward()
            host.route("default", way)
        for block in ("192.168.40.0/22", "10.121.4.0/22"):
            west.route(block, "169.254.9.2")
        for block in ("10.64.0.0/14", "10.121.0.0/22"):
            gate.route(block, "169.254.9.1")
        for address in RESOLVERS:
            self.node.run("ip", "address", "add", f"{address}/32", "dev", "lo")

    def _laptop(self, number: int, name: str) -> LaptopHost:
        host = self._lab.host(f"laptop{number}")
        here, way = f"203.0.113.{4 * number + 2}", f"203.0.113.{4 * number + 1}"
        self._lab.wire((host, "wlan0", f"{here}/30"), (self.net, f"laptop{number}", f"{way}/30"))
        host.route("default", way)
        return LaptopHost(host, name)

    def _furnish(self, gateway: GatewayHost) -> None:
        """Write what the role writes, load the guard, and put the first book in force."""
        settings, sockets = Path(gateway.folders.settings), Path(gateway.folders.sockets)
        for folder in (settings, sockets, *(sockets / each for each in Transport)):
            folder.mkdir()
            os.chown(folder, NOBODY, NOGROUP)
        for each in Transport:
            (settings / f"{each}.conf").write_text(server_conf(gateway.gateway, each, gateway.folders))
        for above in (self._lab.folder, gateway.host.folder):
            above.chmod(0o711)
        run(["/bin/mknod", "-m", "0666", str(gateway.host.folder / "tun"), "c", "10", "200"], check=True)
        gateway.host.load_rules(guard_rules(gateway.gateway))
        self.identify(gateway.gateway.place, Use.SERVER, gateway.gateway.name)


# As the unit starts it: nobody's account, a router's rights. The device is open to all on a machine that has udev.
_RAISED = ",".join(f"+{each.removeprefix('CAP_').lower()}" for each in RIGHTS)
_START = (
    'mount --bind "$1" /dev/net/tun && exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs '
    f"--inh-caps=-all,{_RAISED} --ambient-caps=-all,{_RAISED} --bounding-set=-all,{_RAISED} "
    # Whatever is to change its clock is for the daemon alone.
    'env $FOR_THE_DAEMON openvpn --suppress-timestamps --config "$0"'
)
# The system's Python in its isolated mode: nothing of the project but the keeper is in its reach.
_KEEPER = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("keeper", run_name="__main__", alter_sys=True)
"""
