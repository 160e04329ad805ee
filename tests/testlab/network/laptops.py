"""Somebody's laptop in a laboratory, with the stock client."""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from signal import SIGKILL
from subprocess import run
from types import TracebackType
from typing import Any, Self

from bedplate.plan.laptops import LaptopGateway, Transport
from tests.testlab.fleets.variants import LAPTOP_PLANS_PUBLIC, RESOLVERS, lab_gateways
from tests.testlab.keys.authority import LabKeys
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until
from vpn.certificates import Use
from vpn.laptops.server import CAPABILITIES, Folders, Laptop, LaptopKeys, client_profile, guard_rules, server_conf
from vpn.push import AccessList, GatewayKeys, access_list_text

_SCRIPT = Path("/etc/openvpn/update-resolv-conf")
# What NetworkManager and the script of that name do with what a gateway tells them of names.
_UP = r"""#!/bin/sh
env | sed -n 's/^foreign_option_[0-9]*=dhcp-option //p' | sed 's/^DNS /nameserver /; s/^DOMAIN /search /' > %s
"""
# Asks whom the file that is its first word names.
NAMED = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
_SCRIPTED = 'mount --bind "$0" "$1" && shift && exec "$@"'


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

    def named(self, *command: str) -> str:
        """Run a command that asks whom the gateway told to ask."""
        return self.host.run("sh", "-c", NAMED, str(self.host.folder / "resolv.conf"), *command)

    def names_from_gateway(self) -> Path:
        """Return a script that takes up what a gateway tells of names, for this laptop alone."""
        script = self.host.folder / "up"
        script.write_text(_UP % (self.host.folder / "resolv.conf"))
        script.chmod(0o755)
        return script

    def type(self, line: str, folder: Path) -> None:
        """Do what a person types here, in a folder; the client goes on, and its script changes this laptop alone."""
        words = shlex.split(line.removeprefix("sudo "))
        words = [str(folder / word) if (folder / word).is_file() else word for word in words]
        if words[0] == "openvpn":
            own = ("sh", "-c", _SCRIPTED, str(self.names_from_gateway()), str(_SCRIPT))
            self.client = self.host.start(*own, *words, log="typed.log")
            self.wait()
        else:
            self.named(*words)


NOBODY, NOGROUP = 65534, 65534
_ROOT = Path(__file__).parents[3]
# As the unit starts it: nobody's account, a router's rights. The device is open to all on a machine that has udev.
_RAISED = ",".join(f"+{each.removeprefix('CAP_').lower()}" for each in CAPABILITIES)
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
        return self.host.run(*self._keeper, *command, told=told)

    @property
    def shell(self) -> str:
        """The line of a shell that asks the keeper what follows it."""
        return shlex.join(("ip", "netns", "exec", self.host.namespace, *self._keeper))

    @property
    def status(self) -> Any:  # noqa: ANN401  JSON
        """How it is, as its keeper prints it."""
        return json.loads(self.keeper("status"))

    @property
    def _keeper(self) -> tuple[str, ...]:
        places = ("--settings", str(self.folders.settings), "--sockets", str(self.folders.sockets), "--owner", "nobody")
        memory = ("--memory", str(self.host.folder / "memory"))
        return "/usr/bin/python3", "-I", "-c", _KEEPER, str(_ROOT / "vpn"), *places, *memory

    def log(self, transport: Transport = Transport.UDP) -> str:
        """Return what a daemon said since it was started."""
        return self.daemons[transport].told


NODE, MACHINE = IPv4Address("10.64.32.10"), IPv4Address("192.168.40.21")
MACHINE_NAME, NODE_NAME = "titan-01.cellar.lab.internal", "workbench-cpu-1.us-west-2.lab.internal"
# What must never be seen on a wire of the internet: the plan's addresses in a packet's own header.
CLEAR = "net 10.64.0.0/10 or net 192.168.40.0/22"
PLACES = ("us-west-2", "cellar")
# What is behind the gateway of each, by the plan: machines, and the laptops that dialled there.
HERE, THERE = ("10.64.0.0/14", "10.121.0.0/22"), ("192.168.40.0/22", "10.121.4.0/22")
MACHINES = {"us-west-2": "laptops.us-west-2", "cellar": "gate.cellar"}


class LaptopLab:
    """Everything of one laboratory; `laptops` are the devices that the book lets in, `gateways` those of the file."""

    def __init__(
        self,
        name: str,
        *names: str,
        gateways: tuple[LaptopGateway, ...] = (),
        amend: Callable[[str], str] = str,
    ) -> None:
        """Wire it, with nothing started yet; `amend` changes what the daemons are told: shortened lives and no more."""
        self._lab = Lab(name)
        self._amend = amend
        self.keys = LabKeys()
        self.devices = tuple(Laptop(each, slot) for slot, each in enumerate(names))
        self.net = self._lab.host("net")
        self.node, self.machine = self._lab.host("node"), self._lab.host("machine")
        self.gateways = {
            gateway.place: GatewayHost(self._lab.host(f"gw-{gateway.place}"), gateway)
            for gateway in gateways or lab_gateways()
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

    def send(self, place: str, book: AccessList | None = None, *cut: str) -> Mapping[str, object]:
        """Send a gateway the book: of everybody, with the next list, where no other is given."""
        gateway = self.gateways[place]
        text = access_list_text(gateway.gateway, book or AccessList(self.keys.revocations(), self.devices), cut)
        told: Mapping[str, object] = json.loads(gateway.keeper("take", told=text))
        return told

    def identify(self, place: str, use: Use, name: str) -> Mapping[str, object]:
        """Send a gateway the book of everybody, with a new certificate."""
        keys = GatewayKeys(self.keys.trusted, *self.keys.pair(name, use), self.keys.hidden)
        return self.send(place, AccessList(self.keys.revocations(), self.devices, {place: keys}))

    def impersonate(self, place: str, use: Use, name: str) -> None:
        """Give a gateway a certificate that no keeper would take, and start it over UDP."""
        gateway = self.gateways[place]
        for file, text in zip(("server.crt", "server.key"), self.keys.pair(name, use), strict=True):
            Path(gateway.folders.settings / file).write_text(text)
        gateway.start(Transport.UDP)

    def answer_names(self) -> None:
        """Let the resolvers' addresses answer for the machines."""
        listening = [f"--listen-address={address}" for address in RESOLVERS]
        names = [f"--host-record={MACHINE_NAME},{MACHINE}", f"--host-record={NODE_NAME},{NODE}"]
        quiet = ["--no-daemon", "--no-resolv", "--no-hosts", "--bind-interfaces", "--user=root", "--pid-file="]
        program = self.node.start("dnsmasq", *quiet, *listening, *names, log="names.log")
        until(lambda: "started" in program.told, 10, "dnsmasq does not answer")

    def named(self, host: LabHost, *command: str) -> str:
        """Run a command on a machine that asks the fleet's resolvers for names."""
        asked = host.folder / "resolv.conf"
        asked.write_text("".join(f"nameserver {each}\n" for each in RESOLVERS))
        return host.run("sh", "-c", NAMED, str(asked), *command)

    def shell(self, folder: Path) -> Path:
        """Return a folder with an ssh that asks the keepers here, under the names of the plan."""
        folder.mkdir()
        cases = "".join(f"{MACHINES[place]}) exec {each.shell} $verb;;\n" for place, each in self.gateways.items())
        words = "host=${@: -2:1} last=${@: -1} verb=${last##*bedplate-vpn }"
        (folder / "ssh").write_text(f"#!/bin/bash\n{words}\ncase $host in\n{cases}esac\n")
        (folder / "ssh").chmod(0o755)
        return folder

    def forget(self) -> None:
        """Make every gateway one that has its roles and no keys yet."""
        for gateway in self.gateways.values():
            settings = Path(gateway.folders.settings)
            for file in (
                *settings.glob("*.crt"),
                *settings.glob("*.key"),
                *settings.glob("*.version"),
                settings / "crl.pem",
            ):
                file.unlink()

    def serve(self) -> None:
        """Start whatever daemons do not run, as the unit that waits for keys does."""
        for gateway in self.gateways.values():
            gateway.start(*(each for each in Transport if each not in gateway.daemons))

    def _lay(self) -> None:
        """Lay the wires: each gateway to the internet, to what is behind it, and to the other."""
        self.net.forward()
        west, gate = (self.gateways[place].host for place in PLACES)
        self._lab.wire((west, "wan0", f"{LAPTOP_PLANS_PUBLIC}/24"), (self.net, "west", "52.1.2.1/24"))
        self._lab.wire((gate, "wan0", "8.20.30.40/24"), (self.net, "gate", "8.20.30.1/24"))
        self._lab.wire((west, "lan0", "10.64.0.4/16"), (self.node, "lan0", f"{NODE}/16"))
        self._lab.wire((gate, "lan0", "192.168.40.1/22"), (self.machine, "lan0", f"{MACHINE}/22"))
        for host, way in (
            (west, "52.1.2.1"),
            (gate, "8.20.30.1"),
            (self.node, "10.64.0.4"),
            (self.machine, "192.168.40.1"),
        ):
            host.forward()
            host.route("default", way)
        for address in RESOLVERS:
            self.node.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        self._join(west, gate)

    def _join(self, west: LabHost, gate: LabHost) -> None:
        """Lead from what is behind one gateway to what is behind the other."""
        self._lab.wire((west, "links0", "169.254.9.1/30"), (gate, "links0", "169.254.9.2/30"))
        for block in THERE:
            west.route(block, "169.254.9.2")
        for block in HERE:
            gate.route(block, "169.254.9.1")

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
            (settings / f"{each}.conf").write_text(self._amend(server_conf(gateway.gateway, each, gateway.folders)))
        for above in (self._lab.folder, gateway.host.folder):
            above.chmod(0o711)
        run(["/bin/mknod", "-m", "0666", str(gateway.host.folder / "tun"), "c", "10", "200"], check=True)
        gateway.host.load_rules(guard_rules(gateway.gateway))
        self.identify(gateway.gateway.place, Use.SERVER, gateway.gateway.name)
