"""Laptops with the stock OpenVPN client and gateways with the gateway agent, in a laboratory."""

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

from bedplate.plan.laptops import LaptopGatewayPlan, Transport
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, RESOLVERS, lab_gateways
from tests.testlab.keys.authority import LabKeys
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until
from vpn.certificates import Use
from vpn.laptops.server import CAPABILITIES, Folders, Laptop, LaptopKeys, client_profile, guard_rules, server_conf
from vpn.push import AccessList, GatewayKeys, access_list_text

_SCRIPT = Path("/etc/openvpn/update-resolv-conf")
# What NetworkManager and update-resolv-conf do with the pushed resolvers.
_UP = r"""#!/bin/sh
env | sed -n 's/^foreign_option_[0-9]*=dhcp-option //p' | sed 's/^DNS /nameserver /; s/^DOMAIN /search /' > %s
"""
# Runs a command with its first argument as /etc/resolv.conf.
NAMED = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
_SCRIPTED = 'mount --bind "$0" "$1" && shift && exec "$@"'


@dataclass
class LaptopHost:
    """A laptop on the internet."""

    host: LabHost
    name: str
    client: LabProgram | None = None

    def connect(self, profile: str, *more: str, env: Mapping[str, str] | None = None) -> LabProgram:
        """Start the stock client with a profile, and end the one that ran before."""
        self.end()
        file = self.host.folder / "profile.ovpn"
        file.write_text(profile)
        log = f"client-{len(self.host.programs)}.log"
        self.client = self.host.start("openvpn", "--config", str(file), *more, log=log, env=env)
        return self.client

    @property
    def profile(self) -> str:
        """The profile of the last started client."""
        return (self.host.folder / "profile.ovpn").read_text()

    def end(self) -> None:
        """Kill the client."""
        if self.client is not None:
            self.client.end(SIGKILL)

    def wait(self, seconds: float = 20) -> None:
        """Wait until the client is connected."""
        client = self.client
        assert client is not None
        until(lambda: "Initialization Sequence Completed" in client.output, seconds, f"{self.name} does not connect")

    def named(self, *command: str) -> str:
        """Run a command with the resolver that the gateway pushed."""
        return self.host.run("sh", "-c", NAMED, str(self.host.folder / "resolv.conf"), *command)

    def names_from_gateway(self) -> Path:
        """Return a script that configures the pushed resolver for this laptop only."""
        script = self.host.folder / "up"
        script.write_text(_UP % (self.host.folder / "resolv.conf"))
        script.chmod(0o755)
        return script

    def type(self, line: str, folder: Path) -> None:
        """Run a command line of the documentation in a folder; a client keeps running."""
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
# As the unit starts it: an unprivileged user with a router's capabilities. udev gives all users access to the device.
_RAISED = ",".join(f"+{capability.removeprefix('CAP_').lower()}" for capability in CAPABILITIES)
_START = (
    'mount --bind "$1" /dev/net/tun && exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs '
    f"--inh-caps=-all,{_RAISED} --ambient-caps=-all,{_RAISED} --bounding-set=-all,{_RAISED} "
    # Variables such as a false clock are for the daemon only. Its unit has a private /tmp.
    'env TMPDIR="${0%/*}" $FOR_THE_DAEMON openvpn --suppress-timestamps --config "$0"'
)
# The system's Python in isolated mode: it can import the agent and nothing else of the project.
_AGENT = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("programs.gateway", run_name="__main__", alter_sys=True)
"""


@dataclass
class GatewayHost:
    """A gateway: its OpenVPN daemons and the gateway agent."""

    host: LabHost
    gateway: LaptopGatewayPlan
    daemons: dict[Transport, LabProgram] = field(default_factory=dict)

    @property
    def folders(self) -> Folders:
        """The folders of settings and sockets."""
        return Folders(PurePosixPath(self.host.folder / "settings"), PurePosixPath(self.host.folder / "sockets"))

    def start(self, *transports: Transport, env: Mapping[str, str] | None = None) -> None:
        """Start daemons, by default of both transports, and wait until they serve; `env` is only for them."""
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
        try:
            until(lambda: "Initialization Sequence Completed" in program.output, 20, f"{conf} does not serve")
        except AssertionError as missing:
            raise AssertionError(f"{missing}\n{program.output}") from None

    def call_agent(self, *command: str, stdin: str | None = None) -> str:
        """Call the gateway agent, as an operator does over SSH."""
        return self.host.run(*self._agent, *command, stdin=stdin)

    @property
    def shell(self) -> str:
        """The shell command that calls the gateway agent."""
        return shlex.join(("ip", "netns", "exec", self.host.namespace, *self._agent))

    @property
    def status(self) -> Any:  # noqa: ANN401  JSON
        """The status that the gateway agent prints."""
        return json.loads(self.call_agent("status"))

    @property
    def _agent(self) -> tuple[str, ...]:
        places = ("--settings", str(self.folders.settings), "--sockets", str(self.folders.sockets), "--owner", "nobody")
        state = ("--state", str(self.host.folder / "state"))
        return "/usr/bin/python3", "-I", "-c", _AGENT, str(_ROOT / "bedplate"), *places, *state

    def log(self, transport: Transport = Transport.UDP) -> str:
        """Return the output of a daemon since its start."""
        return self.daemons[transport].output


NODE, MACHINE = IPv4Address("10.64.32.10"), IPv4Address("192.168.40.21")
MACHINE_NAME, NODE_NAME = "titan-01.cellar.lab.internal", "workbench-cpu-1.us-west-2.lab.internal"
# Packets that must not be on the internet: with addresses of the plan in their outer header.
CLEAR = "net 10.64.0.0/10 or net 192.168.40.0/22"
PLACES = ("us-west-2", "cellar")
# The networks behind each gateway: machines and laptops.
HERE, THERE = ("10.64.0.0/14", "10.121.0.0/22"), ("192.168.40.0/22", "10.121.4.0/22")
MACHINES = {"us-west-2": "laptops.us-west-2", "cellar": "gate.cellar"}


class LaptopLab:
    """A laboratory: `laptops` are the devices in the access list, `gateways` those of the fleet file."""

    def __init__(
        self,
        name: str,
        *names: str,
        gateways: tuple[LaptopGatewayPlan, ...] = (),
        amend: Callable[[str], str] = str,
    ) -> None:
        """Wire it, with nothing started yet; `amend` changes what the daemons are told: shortened lives and no more."""
        self._lab = Lab(name)
        self._amend = amend
        self.keys = LabKeys()
        self.devices = tuple(Laptop(laptop_name, slot) for slot, laptop_name in enumerate(names))
        self.net = self._lab.host("net")
        self.node, self.machine = self._lab.host("node"), self._lab.host("machine")
        self.gateways = {
            gateway.place: GatewayHost(self._lab.host(f"gw-{gateway.place}"), gateway)
            for gateway in gateways or lab_gateways()
        }
        self._wire()
        for gateway in self.gateways.values():
            self._install(gateway)
        self.laptops = {laptop_name: self._laptop(number, laptop_name) for number, laptop_name in enumerate(names)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Killed, because a clean exit takes a second.
        for laptop in self.laptops.values():
            laptop.end()
        for gateway in self.gateways.values():
            for daemon in gateway.daemons.values():
                daemon.end(SIGKILL)
        self._lab.close()

    def profile(self, name: str, keys: LaptopKeys | None = None) -> str:
        """Return the profile of a laptop, of its own keys where no others are given."""
        every = tuple(gateway.gateway for gateway in self.gateways.values())
        return client_profile(every, name, keys or self.keys.laptop(name))

    def send(self, place: str, access_list: AccessList | None = None, *cut: str) -> Mapping[str, object]:
        """Send a gateway an access list; by default with all laptops and the next revocation list."""
        gateway = self.gateways[place]
        text = access_list_text(gateway.gateway, access_list or AccessList(self.keys.revocations(), self.devices), cut)
        answer: Mapping[str, object] = json.loads(gateway.call_agent("activate", stdin=text))
        return answer

    def identify(self, place: str, use: Use, name: str) -> Mapping[str, object]:
        """Send a gateway the access list of all laptops with a new certificate."""
        keys = GatewayKeys(self.keys.trusted, *self.keys.pair(name, use), self.keys.hidden)
        return self.send(place, AccessList(self.keys.revocations(), self.devices, {place: keys}))

    def impersonate(self, place: str, use: Use, name: str) -> None:
        """Give a gateway a certificate that the agent would reject, and start it over UDP."""
        gateway = self.gateways[place]
        for file, text in zip(("server.crt", "server.key"), self.keys.pair(name, use), strict=True):
            Path(gateway.folders.settings / file).write_text(text)
        gateway.start(Transport.UDP)

    def answer_names(self, *more: str) -> None:
        """Start DNS on the resolvers' addresses, with more options of dnsmasq."""
        listening = [f"--listen-address={address}" for address in RESOLVERS]
        names = [f"--host-record={MACHINE_NAME},{MACHINE}", f"--host-record={NODE_NAME},{NODE}"]
        quiet = ["--no-daemon", "--no-resolv", "--no-hosts", "--bind-interfaces", "--user=root", "--pid-file="]
        program = self.node.start("dnsmasq", *quiet, *listening, *names, *more, log="names.log")
        until(lambda: "started" in program.output, 10, "dnsmasq does not answer")

    def named(self, host: LabHost, *command: str) -> str:
        """Run a command on a machine that asks the fleet's resolvers for names."""
        resolv_conf = host.folder / "resolv.conf"
        resolv_conf.write_text("".join(f"nameserver {resolver}\n" for resolver in RESOLVERS))
        return host.run("sh", "-c", NAMED, str(resolv_conf), *command)

    def shell(self, folder: Path) -> Path:
        """Return a folder with an ssh that calls the gateway agents here, under the names of the plan."""
        folder.mkdir()
        cases = "".join(
            f"{MACHINES[place]}) exec {gateway.shell} $verb;;\n" for place, gateway in self.gateways.items()
        )
        words = "host=${@: -2:1} last=${@: -1} verb=${last##*bedplate-vpn }"
        (folder / "ssh").write_text(f"#!/bin/bash\n{words}\ncase $host in\n{cases}esac\n")
        (folder / "ssh").chmod(0o755)
        return folder

    def forget(self) -> None:
        """Remove the keys and lists of every gateway; its roles stay."""
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
        """Start all daemons that do not run, as their path unit does."""
        for gateway in self.gateways.values():
            gateway.start(*(transport for transport in Transport if transport not in gateway.daemons))

    def _wire(self) -> None:
        """Connect the hosts: each gateway to the internet, to its network, and to the other gateway."""
        self.net.forward()
        west, gate = (self.gateways[place].host for place in PLACES)
        self._lab.wire((west, "wan0", f"{GATEWAY_ADDRESS}/24"), (self.net, "west", "52.1.2.1/24"))
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
        """Route between the networks behind both gateways."""
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

    def _install(self, gateway: GatewayHost) -> None:
        """Write what the role writes, load the packet filter, and send the first access list."""
        settings, sockets = Path(gateway.folders.settings), Path(gateway.folders.sockets)
        for folder in (settings, sockets, *(sockets / transport for transport in Transport)):
            folder.mkdir()
            os.chown(folder, NOBODY, NOGROUP)
        for transport in Transport:
            (settings / f"{transport}.conf").write_text(
                self._amend(server_conf(gateway.gateway, transport, gateway.folders))
            )
        for above in (self._lab.folder, gateway.host.folder):
            above.chmod(0o711)
        run(["/bin/mknod", "-m", "0666", str(gateway.host.folder / "tun"), "c", "10", "200"], check=True)
        gateway.host.load_rules(guard_rules(gateway.gateway))
        self.identify(gateway.gateway.place, Use.SERVER, gateway.gateway.name)
