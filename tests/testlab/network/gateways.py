"""Gateways with IPsec in user space, for kernels without ESP: strongSwan's kernel-libipsec instead of XFRM.

The product's files are used as rendered. Charon's settings include them, and its TUN device has the name of the
expected XFRM interface as an alternative name. kernel-libipsec cannot distinguish two tunnels for all traffic, so each
tunnel has its own charon with its own ports.
"""

import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path, PurePath, PurePosixPath
from time import monotonic, sleep, time
from typing import Protocol

from tests.testlab.network.netlab import (
    SLOWNESS,
    Answers,
    Lab,
    LabError,
    LabHost,
    LabProgram,
    capture,
    packets,
    pinging,
    until,
)
from vpn.sites.files import DIAL, GUARD_RULES, LAST_ROUTES, SERVICE, SYSCTL_CONF, Places, RenderedFile, files_of
from vpn.sites.gateway import Gateway, Peer, Proof, Proofs, SharedKey, full_mesh_gateway

IKE = (500, 4500)
_FIRST_PORT = 10_000
# kernel-libipsec installs its own routes in a table that is not used.
_SETTINGS = """include {product}
charon-systemd {{
  load = {plugins}
  port = {ports[0]}
  port_nat_t = {ports[1]}
  routing_table = 45000
  routing_table_prio = 45000
  plugins {{
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
    kernel-netlink {{
      fwmark = 0x62656470
    }}
  }}
}}
"""
# Loaded before a peer dials: conntrack must not remember a packet from before the forwarding rules.
FORGETFUL = """table inet lab_dialling
delete table inet lab_dialling
table inet lab_dialling {
  ct timeout dialling { protocol udp; l3proto ip; policy = { unreplied : 1, replied : 60 }; }
  chain dialled { type filter hook prerouting priority -150; udp dport { 500, 4500 } ct timeout set "dialling"; }
}
"""
_HANDOVER = """table inet lab_handover
delete table inet lab_handover
table inet lab_handover {{
  chain in {{ type nat hook prerouting priority -100; {into} }}
  chain out {{ type nat hook postrouting priority 100; {out} }}
}}
"""
_LAST_RULES = "\t\tlimit rate 10/minute"


def ports_of(number: int) -> tuple[int, int]:
    """Return the ports of one of several charons."""
    return _FIRST_PORT + 2 * number, _FIRST_PORT + 2 * number + 1


def settings_over(product: PurePath, text: str, ports: tuple[int, int] = IKE) -> str:
    """Return charon's settings with kernel-libipsec, which include the product's with this text."""
    (plugins,) = (line.partition(" = ")[2] for line in text.splitlines() if "kernel-netlink" in line)
    plugins = plugins.replace("kernel-netlink", "kernel-libipsec kernel-netlink")
    return _SETTINGS.format(product=product, plugins=plugins, ports=ports)


def handover(peers: Mapping[IPv4Address, tuple[int, int]]) -> str:
    """Return nftables rules that forward each peer's packets to its charon; all send from the IKE ports."""
    into, out = "", ""
    for peer, ports in peers.items():
        for own, standard in zip(ports, IKE, strict=True):
            into += f"ip saddr {peer} udp dport {standard} redirect to :{own}; "
            out += f"ip daddr {peer} udp sport {own} masquerade to :{standard}; "
    return _HANDOVER.format(into=into, out=out)


def with_handover(rules: str) -> str:
    """Return a node's packet filter that accepts forwarded packets."""
    return rules.replace(_LAST_RULES, f"\t\tmeta l4proto udp ct status dnat accept\n{_LAST_RULES}", 1)


def tun_device(daemon: LabProgram) -> str:
    """Return the TUN device of a charon, or an empty text if it has none yet."""
    infos = [file.read_text() for file in Path(f"/proc/{daemon.pid}/fdinfo").iterdir()]
    return next((line.split()[1] for text in infos for line in text.splitlines() if line.startswith("iff:")), "")


def name_device(host: LabHost, daemon: LabProgram, name: str) -> None:
    """Give a charon's TUN device an alternative name."""
    until(lambda: bool(tun_device(daemon)), 15, "charon has no TUN device")
    host.run("ip", "link", "property", "add", "dev", tun_device(daemon), "altname", name)


@dataclass(frozen=True, slots=True)
class LabUnit:
    """A systemd unit: each key's values, in order."""

    values: Mapping[str, tuple[str, ...]]

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of its commands."""
        return dict(pair.split("=", 1) for line in self.values.get("Environment", ()) for pair in line.split())

    def commands(self, key: str) -> list[list[str]]:
        """Return the commands of a key, such as ExecStartPost."""
        return [line.split() for line in self.values.get(key, ())]


def read_unit(text: str) -> LabUnit:
    """Return the unit of a text."""
    values: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values[key] = (*values.get(key, ()), value)
    return LabUnit(values)


class Amend(Protocol):
    """A change of a rendered file, such as shorter lifetimes or a seeded defect."""

    def __call__(self, file: RenderedFile) -> str:
        """Return the text to write."""


def as_rendered(file: RenderedFile) -> str:
    """Change nothing."""
    return file.text


@dataclass(frozen=True)
class LabCharon:
    """One charon: its tunnels, the folder of its files, and its ports."""

    name: str
    gateway: Gateway
    folder: Path
    log: Path
    ports: tuple[int, int] = IKE

    @property
    def places(self) -> Places:
        """The paths of its files."""
        root = PurePosixPath(self.folder)
        return Places(etc=root / "etc", run=root / "run", lib=root / "lib", log=PurePosixPath(self.log))

    @property
    def userspace(self) -> Path:
        """The settings that load kernel-libipsec."""
        return self.folder / "userspace.conf"

    def unit(self, name: str) -> LabUnit:
        """Return a unit."""
        return read_unit((self.folder / f"root/etc/systemd/system/{name}.service").read_text())


@dataclass
class LabGateway:
    """A gateway, and the programs of its charons by name; `clock` is an environment that sets their clocks.

    `in_kernel`: the kernel encrypts, and one charon has all tunnels.
    """

    host: LabHost
    gateway: Gateway
    amend: Amend = as_rendered
    clock: Mapping[str, str] = field(default_factory=dict)
    in_kernel: bool = False
    daemons: dict[str, LabProgram] = field(default_factory=dict)
    watches: dict[str, LabProgram] = field(default_factory=dict)

    @property
    def charons(self) -> tuple[LabCharon, ...]:
        """Its charons: one, or in user space one for each tunnel."""
        whole = LabCharon("tunnels", self.gateway, self.host.folder, self._log)
        if self.in_kernel or len(self.gateway.tunnels) == 1:
            return (whole,)
        return tuple(
            LabCharon(
                tunnel.name,
                replace(self.gateway, tunnels=(tunnel,)),
                self.host.folder / tunnel.name,
                self._log,
                ports_of(number),
            )
            for number, tunnel in enumerate(self.gateway.tunnels)
        )

    @property
    def places(self) -> Places:
        """Where the files of a gateway with one charon are."""
        return LabCharon("tunnels", self.gateway, self.host.folder, self._log).places

    @property
    def log(self) -> str:
        """The logs of its charons."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def apply_config(self) -> None:
        """Write all files, also those outside charon's folder, below the host's folder."""
        self._apply_config(self.gateway, self.places, self.host.folder)
        for charon in self.charons:
            self._apply_config(charon.gateway, charon.places, charon.folder)
            if not self.in_kernel:
                product = Path(charon.places.folder) / "strongswan.conf"
                charon.userspace.write_text(settings_over(product, product.read_text(), charon.ports))

    def guard(self) -> None:
        """Load the guard, its routes and sysctl settings, as at boot."""
        self.load_role_files()
        if len(self.charons) > 1:
            peers = {charon.gateway.tunnels[0].far.outside: charon.ports for charon in self.charons}
            self.host.load_rules(handover(peers))

    def load_role_files(self) -> None:
        """Load what the role brings, before a gateway has tunnels."""
        self.host.run("nft", "-f", str(self._root(str(GUARD_RULES))))
        self.host.run("ip", "-batch", str(self._root(str(LAST_ROUTES))))
        self.host.run("sysctl", "-q", "-p", str(self._root(str(SYSCTL_CONF))))
        if len(self.charons) > 1:
            self.host.load_rules(FORGETFUL)

    def start(self, *, loads: bool = True) -> None:
        """Start every charon and watch script as their units do; without `loads`, charon loads no connections."""
        for charon in self.charons:
            self._start(charon, loads)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End every charon and watch script."""
        for program in (*self.watches.values(), *self.daemons.values()):
            program.end(how)

    def load(self) -> None:
        """Reload connections and keys of every charon, as its unit does."""
        for charon in self.charons:
            unit = charon.unit(SERVICE)
            for command in unit.commands("ExecReload"):
                self.host.run(*command, env=unit.env)

    def dial(self) -> None:
        """Check all tunnels once, as the watch script does."""
        for charon in self.charons:
            env, places = charon.unit(DIAL).env, charon.places
            for name, *_, role in (line.split()[:6] for line in Path(places.table).read_text().splitlines()):
                self.host.tries(str(places.lib / "ipsec-look"), places.socket, name, role, env=env)

    def swanctl(self, *words: str) -> str:
        """Run swanctl for every charon, and return the output."""
        return "".join(
            self.host.run("swanctl", *words, "--uri", charon.places.socket, env=charon.unit(SERVICE).env)
            for charon in self.charons
        )

    @property
    def sas(self) -> int:
        """The number of established IKE_SAs."""
        return self.swanctl("--list-sas").count("ESTABLISHED")

    @property
    def _log(self) -> Path:
        return self.host.folder / "charon.log"

    def _start(self, charon: LabCharon, loads: bool) -> None:  # noqa: FBT001  carried on from start
        unit, socket = charon.unit(SERVICE), Path(charon.places.socket.removeprefix("unix://"))
        socket.unlink(missing_ok=True)
        (command,) = unit.commands("ExecStart")
        own = {} if self.in_kernel else {"STRONGSWAN_CONF": str(charon.userspace)}
        daemon = self.host.start(*command, log=f"{charon.name}.out", env={**unit.env, **self.clock, **own})
        until(socket.exists, 15, f"charon {charon.name} does not listen")
        if not self.in_kernel:
            name_device(self.host, daemon, charon.gateway.tunnels[0].device)
        for post in unit.commands("ExecStartPost"):
            if loads or "--load-all" not in post:
                self.host.run(*post, env=unit.env)
        self.daemons[charon.name] = daemon
        self.watches[charon.name] = self._watch(charon)

    def _watch(self, charon: LabCharon) -> LabProgram:
        unit = charon.unit(DIAL)
        (command,) = unit.commands("ExecStart")
        return self.host.start(*command, log=f"{charon.name}-dial.out", env=unit.env)

    def _apply_config(self, gateway: Gateway, places: Places, folder: Path) -> None:
        (folder / "run").mkdir(parents=True, exist_ok=True)
        for file in files_of(gateway, places):
            is_own = file.path.is_relative_to(folder)
            path = Path(file.path) if is_own else folder / "root" / str(file.path).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.amend(file))
            path.chmod(file.mode)

    def _root(self, path: str) -> Path:
        return self.host.folder / "root" / path.lstrip("/")


_DAEMONS = Path("/usr/lib/frr")


@dataclass
class LabRouter:
    """A host with FRR."""

    host: LabHost
    programs: tuple[LabProgram, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the sockets for vtysh."""
        return self.host.folder / "frr"

    def start(self, text: str) -> None:
        """Start both daemons and give them a text."""
        self.folder.mkdir(exist_ok=True)
        # FRR drops root privileges and must still reach its sockets.
        self.host.folder.parent.chmod(0o711)
        shutil.chown(self.folder, "frr", "frr")
        file = self.folder / "frr.conf"
        file.write_text(text)
        self.programs = tuple(self._daemon(name) for name in ("zebra", "bgpd"))
        self.ask("-f", str(file))

    def ask(self, *words: str) -> str:
        """Run vtysh and return its output."""
        return self.host.run("vtysh", "--vty_socket", str(self.folder), *words)

    def stop(self) -> None:
        """Stop both daemons."""
        for program in reversed(self.programs):
            program.end(signal.SIGTERM)

    def _daemon(self, name: str) -> LabProgram:
        own = self.folder
        program = self.host.start(
            str(_DAEMONS / name),
            *("--vty_socket", str(own), "-z", str(own / "zserv.api"), "-i", str(own / f"{name}.pid")),
            *("-f", "/dev/null", "-u", "frr", "-g", "frr", "-P", "0"),
            log=f"{name}.out",
        )
        until((own / f"{name}.vty").exists, 15, f"{name} does not listen; {program.output}")
        return program


CELLAR = Peer(
    name="cellar",
    identity="cellar.gateways.lab.internal",
    public=IPv4Address("198.51.100.2"),
    address=IPv4Address("192.168.40.1"),
    blocks=(IPv4Network("192.168.40.0/24"), IPv4Network("10.121.4.0/24")),
    calls=True,
)
ATTIC = Peer(
    name="attic",
    identity="attic.gateways.lab.internal",
    public=IPv4Address("203.0.113.2"),
    address=IPv4Address("10.64.0.1"),
    blocks=(IPv4Network("10.64.0.0/24"),),
)
DESK, RACK = "192.168.40.10", "10.64.0.10"


@dataclass(frozen=True)
class Pair:
    """The laboratory: two gateways, the internet, and a machine behind each gateway."""

    lab: Lab
    cellar: LabGateway
    attic: LabGateway
    internet: LabHost
    desk: LabHost
    rack: LabHost

    @property
    def gateways(self) -> tuple[LabGateway, LabGateway]:
        """Both gateways, the waiting one first."""
        return self.attic, self.cellar

    def start(self) -> None:
        """Lay, guard and start both, who waits first."""
        for gateway in self.gateways:
            gateway.apply_config()
            gateway.guard()
        for gateway in self.gateways:
            gateway.start()

    def wait(self, seconds: float = 30) -> float:
        """Wait until the desk reaches the rack, and return the seconds it took."""
        return until(lambda: self.desk.pings(RACK, 1), seconds, f"nothing passes; {self.log_tails}")

    @property
    def log_tails(self) -> str:
        """The last lines of both logs."""
        return "\n".join(line for gateway in self.gateways for line in gateway.log.splitlines()[-12:])


def one_key(secret: bytes = b"one key for both") -> Proofs:
    """Return proofs with the same shared key for all gateways."""

    def proof(near: Peer, far: Peer) -> Proof:
        return SharedKey(secret)

    return proof


@contextmanager
def pair(
    proofs: Proofs, amend: Amend = as_rendered, caller: Amend = as_rendered, *, in_kernel: bool = False
) -> Iterator[Pair]:
    """Yield the wired laboratory, not started; `amend` changes all files, `caller` those of the dialling gateway."""
    with Lab("pair") as lab:
        cellar, attic, internet = lab.host("cellar"), lab.host("attic"), lab.host("internet")
        desk, rack = lab.host("desk"), lab.host("rack")
        _join_internet(lab, internet, cellar, "c0", CELLAR)
        _join_internet(lab, internet, attic, "a0", ATTIC)
        internet.forward()
        _stand_behind(lab, desk, cellar, CELLAR, DESK)
        _stand_behind(lab, rack, attic, ATTIC, RACK)
        yield Pair(
            lab,
            LabGateway(
                cellar,
                full_mesh_gateway(CELLAR, (ATTIC,), proofs),
                lambda file: caller(_with(file, amend(file))),
                in_kernel=in_kernel,
            ),
            LabGateway(attic, full_mesh_gateway(ATTIC, (CELLAR,), proofs), amend, in_kernel=in_kernel),
            internet,
            desk,
            rack,
        )


def _with(file: RenderedFile, text: str) -> RenderedFile:
    return replace(file, text=text)


def _join_internet(lab: Lab, internet: LabHost, gateway: LabHost, device: str, peer: Peer) -> None:
    """Connect a gateway to the internet, which has the preceding address."""
    lab.wire((internet, device, f"{peer.public - 1}/24"), (gateway, "wan0", f"{peer.public}/24"))
    gateway.route("default", peer.public - 1)


def _stand_behind(lab: Lab, machine: LabHost, gateway: LabHost, peer: Peer, address: str) -> None:
    """Connect a machine to a gateway's LAN."""
    lab.wire((gateway, "lan0", f"{peer.address}/24"), (machine, "eth0", f"{address}/24"))
    machine.route("default", str(peer.address))


# Packets with addresses of either side, which must not be on the internet.
CLEAR = " or ".join(f"net {block}" for peer in (CELLAR, ATTIC) for block in peer.blocks)
_BEFORE_SECONDS, _STEADY_SECONDS, _HORIZON = 1.5, 3, 60

Fault = Callable[[Pair], None]


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The effect of a fault: seconds from its end to the next reply, all replies, and unencrypted packets."""

    after: float
    answers: Answers
    clear: int
    passed: int


def suffer(pair: Pair, fault: Fault) -> FaultOutcome:
    """Cause a fault at a running pair, and measure in both directions."""
    with ExitStack() as stack:
        wires = [stack.enter_context(capture(pair.internet, device)) for device in ("c0", "a0")]
        out, back = pinging(pair.desk, RACK), pinging(pair.rack, DESK)
        out.wait_for_answer(10)
        sleep(_BEFORE_SECONDS)
        fault(pair)
        end = time()
        until(lambda: out.answers.first_after(end) is not None, _HORIZON, f"never came back; {pair.log_tails}")
        after = (out.answers.first_after(end) or end) - end
        settle(pair)
        back.stop()
        answers = out.stop()
    return FaultOutcome(
        after, answers, sum(len(packets(wire, CLEAR)) for wire in wires), sum(map(len, map(packets, wires)))
    )


def settle(pair: Pair, seconds: float = 30) -> None:
    """Wait until each gateway has had exactly one IKE_SA for a while."""
    end, since = monotonic() + seconds * SLOWNESS, monotonic()
    while monotonic() - since < _STEADY_SECONDS:
        counts = [gateway.sas for gateway in pair.gateways]
        if counts != [1, 1]:
            since = monotonic()
        assert monotonic() < end, f"{counts} IKE_SAs after {seconds} s"
        sleep(0.2 * SLOWNESS)


def killed(which: str, away: float, how: signal.Signals = signal.SIGKILL) -> Fault:
    """Return a fault: a gateway is killed and started again some seconds later, as its unit would."""

    def fault(pair: Pair) -> None:
        gateway = getattr(pair, which)
        gateway.kill(how)
        sleep(away)
        gateway.start()

    return fault


def cut(seconds: float) -> Fault:
    """Return a fault: a line drops all packets for some seconds."""

    def fault(pair: Pair) -> None:
        pair.internet.cut("c0")
        sleep(seconds)
        pair.internet.heal()

    return fault


def forgotten(pair: Pair) -> None:
    """Delete the SA at the end that waits without a notification to the other."""
    pair.internet.cut("a0")
    for tunnel in pair.attic.gateway.tunnels:
        # The notification is lost, so swanctl reports a failure, but the SA is deleted.
        with suppress(LabError):
            pair.attic.swanctl("--terminate", "--ike", tunnel.name, "--force", "--timeout", "1")
    assert pair.attic.sas == 0
    pair.internet.heal()


def unready(pair: Pair) -> None:
    """Restart both, and dial the waiting end before it has loaded its connections."""
    pair.attic.kill()
    pair.cellar.kill()
    pair.attic.start(loads=False)
    pair.cellar.start()
    until(lambda: "NO_PROPOSAL_CHOSEN" in pair.cellar.log, 10, "was not refused")
    pair.attic.load()
