"""Sites with tunnels to a aws_end-in for AWS: two outside addresses, with a charon and a BGP neighbour for each.

The aws_end-in's configuration follows AWS's guide and not the product: it accepts what stacks/vpn.py configures,
waits for the site to dial, and accepts all traffic. It proves nothing about AWS itself.
"""

import signal
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface

from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.laptops import LaptopGatewayPlan, Transport, laptop_gateway_at
from bedplate.plan.nodes import permanent_nodes
from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import (
    ATTIC,
    CELLAR,
    LAB_PLAN,
    cellar_gateway,
    connected_site_gateway,
    one_secret,
    site_of,
)
from tests.testlab.fleets.variants import REGION as VARIANTS_REGION
from tests.testlab.network.gateways import LabGateway, LabRouter, tun_device, with_handover
from tests.testlab.network.netlab import Lab, LabError, LabHost, LabProgram, until
from vpn.laptops.server import device, guard_rules
from vpn.sites.gateway import Gateway, PlaceProofs, SharedKey, Tunnel

_SETTINGS = """charon-systemd {{
  load = random nonce openssl pem kdf hmac gcm drbg vici kernel-libipsec kernel-netlink socket-default
  port = {port}
  port_nat_t = {natt}
  plugins {{
    vici {{
      socket = {socket}
    }}
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
    kernel-netlink {{
      fwmark = 0x41
    }}
  }}
  routing_table = 41000
  filelog {{
    log {{
      path = {log}
      default = 1
      flush_line = yes
    }}
  }}
}}
"""
_CONNECTION = """connections {{
  {name} {{
    version = 2
    proposals = {ike}
    {way}
    dpd_delay = 10s
    local {{
      auth = psk
      id = {own}
    }}
    remote {{
      auth = psk
      id = {site}
    }}
    children {{
      {name} {{
        local_ts = 0.0.0.0/0
        remote_ts = 0.0.0.0/0
        esp_proposals = {esp}
{device}      }}
    }}
  }}
}}
secrets {{
  ike-{name} {{
    id-1 = {own}
    id-2 = {site}
    secret = {key}
  }}
}}
"""
_GROUPS = ("ecp256", "ecp384", "ecp521")
_IKE = ",".join(f"aes256gcm16-prfsha{size}-{group}" for group in _GROUPS for size in (384, 512))
_ESP = ",".join(f"aes256gcm16-{group}" for group in _GROUPS)
_PORT = 7000


@dataclass
class AwsStandIn:
    """The host of the aws_end-in, and its charons by tunnel."""

    host: LabHost
    site: Gateway
    blocks: tuple[str, ...]
    first_port: int = _PORT
    daemons: dict[str, LabProgram] = field(default_factory=dict)

    def start(self) -> None:
        """Start both ends and the BGP neighbour."""
        self.hand_over()
        for number, tunnel in enumerate(self.site.tunnels):
            self.start_tunnel(number, tunnel)
        LabRouter(self.host).start(bgp_of(self.site, self.blocks))

    def hand_over(self) -> None:
        """Forward each outside address to its charon."""
        self.host.load_rules(self._handover())

    def start_tunnel(self, number: int, tunnel: Tunnel) -> None:
        """Start AWS's end of one tunnel."""
        folder = self.host.folder / tunnel.name
        folder.mkdir(exist_ok=True)
        socket = folder / "vici"
        socket.unlink(missing_ok=True)
        ports = self._ports(number)
        text = _SETTINGS.format(port=ports[0], natt=ports[1], socket=f"unix://{socket}", log=folder / "log")
        (folder / "strongswan.conf").write_text(text)
        (folder / "swanctl.conf").write_text(connection_of(tunnel))
        env = {"STRONGSWAN_CONF": str(folder / "strongswan.conf"), "SWANCTL_DIR": str(folder)}
        daemon = self.host.start("/usr/sbin/charon-systemd", log=f"{tunnel.name}.out", env=env)
        until(socket.exists, 15, f"{tunnel.name} does not listen")
        device = tun_device(daemon)
        self.host.run("ip", "link", "set", device, "mtu", "1400", "up")
        assert tunnel.far.inside is not None
        self.host.run("ip", "address", "add", str(tunnel.far.inside), "dev", device)
        self.host.run("swanctl", "--load-all", "--noprompt", "--uri", f"unix://{socket}", env=env)
        self.daemons[tunnel.name] = daemon

    def lose(self, tunnel: Tunnel) -> None:
        """Kill AWS's end of one tunnel."""
        self.daemons[tunnel.name].end(signal.SIGKILL)

    def _ports(self, number: int) -> tuple[int, int]:
        return self.first_port + 2 * number, self.first_port + 2 * number + 1

    def _handover(self) -> str:
        """Return rules that forward each outside address to its charon."""
        into, out = "", ""
        for number, tunnel in enumerate(self.site.tunnels):
            for port, standard in zip(self._ports(number), (500, 4500), strict=True):
                outside = IPv4Address(tunnel.far.outside)
                into += f"ip daddr {outside} udp dport {standard} redirect to :{port}\n"
                out += f"udp sport {port} snat to {outside}:{standard}\n"
        return (
            f"table ip stand_in {{\nchain into {{ type nat hook prerouting priority -100;\n{into}}}\n"
            f"chain out {{ type nat hook postrouting priority 100;\n{out}}}\n}}\n"
        )


def connection_of(tunnel: Tunnel, device: int | None = None) -> str:
    """Return AWS's end of a tunnel for swanctl; `device` is the XFRM interface id if the kernel encrypts."""
    assert isinstance(tunnel.proof, SharedKey)
    return _CONNECTION.format(
        name=tunnel.name,
        ike=_IKE,
        esp=_ESP,
        way=f"local_addrs = {tunnel.far.outside}" if device else "encap = yes",
        device=f"        if_id_in = {device}\n        if_id_out = {device}\n" if device else "",
        own=tunnel.far.outside,
        site=tunnel.near.identity,
        key=tunnel.proof.text,
    )


def bgp_of(site: Gateway, blocks: tuple[str, ...]) -> str:
    """Return AWS's side of BGP: its timers, and a network for each block of the fleet."""
    return bgp_with((site,), blocks)


def bgp_with(sites: tuple[Gateway, ...], blocks: tuple[str, ...]) -> str:
    """Return AWS's side of BGP for several sites, which announces each to the others."""
    (asn,) = {tunnel.asn for site in sites for tunnel in site.tunnels}
    peers = [(tunnel.near.inside.ip, site.asn) for site in sites for tunnel in site.tunnels if tunnel.near.inside]
    lines = [f"router bgp {asn}", " no bgp ebgp-requires-policy", " no bgp network import-check"]
    for peer, number in peers:
        lines += [f" neighbor {peer} remote-as {number}", f" neighbor {peer} timers 10 30"]
    lines += [" address-family ipv4 unicast", *(f"  network {block}" for block in blocks), " exit-address-family"]
    return "\n".join([*lines, "exit", ""])


DESK, RACK = "192.168.40.21", "10.64.32.9"
REGION = "us-west-2"
# Routes from AWS outside the plan, which the site must not accept.
STRAY = ("192.168.40.0/24", "203.0.112.0/24")


@dataclass(frozen=True)
class SiteLab:
    """The laboratory of one site."""

    site: LabGateway
    router: LabRouter
    aws: AwsStandIn
    internet: LabHost
    desk: LabHost
    rack: LabHost

    def start(self) -> None:
        """Start AWS's end, then the site's as its units do."""
        self.aws.start()
        self.site.apply_config()
        self.site.guard()
        self.site.start()
        self.router.start((self.site.host.folder / "root/etc/frr/frr.conf").read_text())

    def wait(self, seconds: float = 60) -> float:
        """Wait until the desk reaches the rack."""
        return until(lambda: self.desk.pings(RACK, 1), seconds, f"nothing passes; {self.site.log[-1500:]}")

    @property
    def routes(self) -> str:
        """The site's routes from BGP."""
        return self.site.host.run("ip", "route", "show", "proto", "bgp")


@contextmanager
def site_lab() -> Iterator[SiteLab]:
    """Yield the wired laboratory, not started."""
    with Lab("site") as lab:
        near, internet, desk = (lab.host(name) for name in ("cellar", "internet", "desk"))
        reach_internet(lab, internet, near)
        lab.wire((near, "lan0", "192.168.40.1/22"), (desk, "eth0", f"{DESK}/22"))
        desk.route("default", "192.168.40.1")
        yield opposite_aws(lab, near, internet, desk)


def reach_internet(lab: Lab, internet: LabHost, host: LabHost) -> None:
    """Connect the host with the site's public address to the internet."""
    public = LAB_PLAN.sites[0].public
    lab.wire((internet, "c0", f"{public - 1}/24"), (host, "wan0", f"{public}/24"))
    host.route("default", public - 1)


def opposite_aws(lab: Lab, near: LabHost, internet: LabHost, desk: LabHost) -> SiteLab:
    """Return the laboratory of a wired site, with the aws_end-in for AWS and a machine behind it."""
    gateway = cellar_gateway()
    gateway = replace(gateway, tunnels=tuple(tunnel for tunnel in gateway.tunnels if tunnel.name.startswith(REGION)))
    far, rack = lab.host("aws"), lab.host("rack")
    lab.wire((internet, "a0", "203.0.113.1/24"), (far, "wan0", f"{gateway.tunnels[0].far.outside}/24"))
    far.run("ip", "address", "add", f"{gateway.tunnels[1].far.outside}/24", "dev", "wan0")
    far.route("default", "203.0.113.1")
    lab.wire((far, "vpc0", "10.64.32.1/19"), (rack, "eth0", f"{RACK}/19"))
    rack.route("default", "10.64.32.1")
    internet.forward()
    far.forward()
    blocks = (str(LAB_PLAN.region(REGION).block), *STRAY)
    return SiteLab(LabGateway(near, gateway), LabRouter(near), AwsStandIn(far, gateway, blocks), internet, desk, rack)


_PORTS = (7000, 7100)
# Documentation addresses (RFC 5737) between a hidden gateway and its router.
_ROUTER, _HIDDEN = "192.0.2.1", "192.0.2.2"
_TRANSLATION = 'table ip lab { chain out { type nat hook postrouting priority 100; oifname "wan0" masquerade; }; }'
_CUT = """
table inet lab_direct
delete table inet lab_direct
table inet lab_direct {{
  chain between {{ type filter hook forward priority 0; {rules} }}
}}
"""


@dataclass(frozen=True)
class LabSite:
    """A site: its gateway, its BGP daemon, and a machine in its LAN."""

    plan: FleetPlan
    site: SitePlan
    gateway: LabGateway
    router: LabRouter
    machine: LabHost

    @property
    def address(self) -> IPv4Address:
        """The machine's address."""
        return self.site.networks[self.site.name][21]

    def prepare(self) -> None:
        """Write the gateway's files and load its packet filters, as its roles do before it has tunnels."""
        name = f"{self.site.gateway}.{self.site.name}"
        (node,) = (node for node in permanent_nodes(self.plan) if node.name == name)
        self.gateway.apply_config()
        self.gateway.load_role_files()
        self.gateway.host.load_rules(with_handover(ruleset(node.firewall_rules, node.roles)))

    def start(self) -> None:
        """Hand each peer to its charon, and start charons and BGP, as the gateway's units do."""
        self.gateway.guard()
        self.gateway.start()
        self.router.start((self.gateway.host.folder / "root/etc/frr/frr.conf").read_text())

    def way_to(self, address: IPv4Address) -> str:
        """Return the gateway's route to an address, or an empty text without one."""
        try:
            return self.gateway.host.run("ip", "route", "get", str(address))
        except LabError:
            return ""


@dataclass(frozen=True)
class SitesLab:
    """The laboratory: both sites, the internet between them, and AWS."""

    attic: LabSite
    cellar: LabSite
    internet: LabHost
    aws: LabHost
    aws_ends: tuple[AwsStandIn, ...]

    @property
    def sites(self) -> tuple[LabSite, LabSite]:
        """Both sites, the dialling one first."""
        return self.attic, self.cellar

    def start(self) -> None:
        """Start AWS's end, then both sites: the second when the first has dialled it in vain."""
        self.start_aws()
        for site in self.sites:
            site.prepare()
        self.attic.start()
        until(lambda: "retransmit 2" in self.attic.gateway.log, 30, "the first never dials the second")
        self.cellar.start()

    def start_aws(self) -> None:
        """Start AWS's end of each site's tunnel, and its router between them."""
        for aws_end in self.aws_ends:
            aws_end.hand_over()
            aws_end.start_tunnel(0, aws_end.site.tunnels[0])
        LabRouter(self.aws).start(bgp_with(tuple(aws_end.site for aws_end in self.aws_ends), self.aws_ends[0].blocks))

    def wait(self, seconds: float = 60) -> float:
        """Wait until the machine of the one site answers that of the other."""
        return until(
            lambda: self.cellar.machine.pings(self.attic.address, 1), seconds, f"nothing passes; {self.log_tails}"
        )

    def is_direct(self) -> bool:
        """Return whether both sites route to each other through their direct tunnel."""
        pairs = ((self.attic, self.cellar), (self.cellar, self.attic))
        return all(f"via {_inside(here, there)} " in here.way_to(there.address) for here, there in pairs)

    def cut_direct(self) -> None:
        """Drop packets between both gateways; packets to AWS pass."""
        attic, cellar = (site.site.public for site in self.sites)
        self.internet.load_rules(
            _CUT.format(rules=f"ip saddr {{ {attic}, {cellar} }} ip daddr {{ {attic}, {cellar} }} drop;")
        )

    def heal(self) -> None:
        """End the cut."""
        self.internet.load_rules(_CUT.format(rules=""))

    @property
    def log_tails(self) -> str:
        """The last lines of both gateways' logs."""
        return "\n".join(line for site in self.sites for line in site.gateway.log.splitlines()[-12:])


def _inside(here: LabSite, there: LabSite) -> IPv4Address:
    (tunnel,) = (tunnel for tunnel in here.gateway.gateway.tunnels if tunnel.name == f"{there.site.name}-site")
    assert tunnel.far.inside
    return tunnel.far.inside.ip


@contextmanager
def sites_lab(plan: FleetPlan, proofs: PlaceProofs = one_secret, hidden: Container[str] = ()) -> Iterator[SitesLab]:
    """Yield the wired laboratory of a plan, not started."""
    with Lab("sites") as lab:
        internet, aws = lab.host("internet"), lab.host("aws")
        sites = [
            _site(lab, plan, first_only(plan, name, proofs), name, _gateway_host(lab, plan, name, internet, hidden))
            for name in (ATTIC, CELLAR)
        ]
        lab.wire((internet, "a0", "203.0.113.1/24"), (aws, "wan0", "203.0.113.250/24"))
        aws.route("default", "203.0.113.1")
        aws_ends = tuple(_stand_in(aws, plan, site, port) for site, port in zip(sites, _PORTS, strict=True))
        internet.forward()
        aws.forward()
        yield SitesLab(sites[0], sites[1], internet, aws, aws_ends)


def _gateway_host(lab: Lab, plan: FleetPlan, name: str, internet: LabHost, hidden: Container[str]) -> LabHost:
    """Return a site's gateway with its public address, or behind a NAT router if it is hidden."""
    site, gate = site_of(plan, name), lab.host(name)
    front = lab.host(f"{name}rt") if name in hidden else gate
    lab.wire((internet, name, f"{site.public - 1}/24"), (front, "wan0", f"{site.public}/24"))
    front.route("default", site.public - 1)
    if front is not gate:
        lab.wire((front, "lan0", f"{_ROUTER}/24"), (gate, "wan0", f"{_HIDDEN}/24"))
        gate.route("default", _ROUTER)
        front.forward()
        front.load_rules(_TRANSLATION)
    return gate


def _site(lab: Lab, plan: FleetPlan, gateway: Gateway, name: str, gate: LabHost) -> LabSite:
    site, machine = site_of(plan, name), lab.host(f"{name}pc")
    size = site.networks[site.name].prefixlen
    lab_site = LabSite(plan, site, LabGateway(gate, gateway), LabRouter(gate), machine)
    lab.wire((gate, "lan0", f"{site.networks[site.name][1]}/{size}"), (machine, "eth0", f"{lab_site.address}/{size}"))
    machine.route("default", site.networks[site.name][1])
    return lab_site


def first_only(plan: FleetPlan, name: str, proofs: PlaceProofs) -> Gateway:
    """Return a site's gateway with one tunnel to AWS, and its direct tunnels."""
    gateway = connected_site_gateway(plan, name, proofs)
    return replace(
        gateway, tunnels=tuple(tunnel for tunnel in gateway.tunnels if tunnel.name != f"{VARIANTS_REGION}-2")
    )


def _stand_in(aws: LabHost, plan: FleetPlan, site: LabSite, port: int) -> AwsStandIn:
    """Configure AWS's end of a site's tunnel at its address; the tunnel has the name of the site."""
    gateway = site.gateway.gateway
    tunnel = next(tunnel for tunnel in gateway.tunnels if tunnel.name == f"{VARIANTS_REGION}-1")
    aws.run("ip", "address", "add", f"{tunnel.far.outside}/24", "dev", "wan0")
    own = replace(gateway, tunnels=(replace(tunnel, name=site.site.name),))
    return AwsStandIn(aws, own, (str(plan.region(VARIANTS_REGION).block),), port)


NAME, GATE, ROUTER = "cellar", "192.168.40.1", "192.168.40.2"

_STATE = "table ip lab { chain through { type filter hook forward priority 0; ct state invalid drop; }; }"


@dataclass(frozen=True)
class OneArmLab:
    """The laboratory: the site with the aws_end-in for AWS, its router, and a laptop at its gateway."""

    site: SiteLab
    router: LabHost
    laptop: LabHost

    @property
    def gate(self) -> LabHost:
        """The host of the gateway."""
        return self.site.site.host

    def keep_state(self) -> None:
        """Make the router stateful: it drops packets of connections that it did not see start."""
        self.router.load_rules(_STATE)

    def start(self) -> None:
        """Load each packet filter of the gateway, start both ends, and wait until packets pass."""
        (node,) = (node for node in permanent_nodes(LAB_PLAN) if node.name == f"gate.{NAME}")
        for rules in (ruleset(node.firewall_rules, node.roles), guard_rules(_laptops())):
            self.gate.load_rules(rules)
        self.site.start()
        self.site.wait()


@contextmanager
def one_arm_lab() -> Iterator[OneArmLab]:
    """Yield the wired laboratory, not started."""
    with Lab("onearm") as lab:
        router, gate, desk, internet = (lab.host(name) for name in ("router", "gate", "desk", "internet"))
        reach_internet(lab, internet, router)
        _make_lan(lab, (router, "lan0", ROUTER), (gate, "eth0", GATE), (desk, "eth0", DESK))
        for host in (gate, desk):
            host.route("default", ROUTER)
        router.forward()
        router.load_rules(_TRANSLATION)
        site = opposite_aws(lab, gate, internet, desk)
        _, *pools = site.site.gateway.blocks
        for block in (*site.site.gateway.remote_blocks, *pools):
            router.route(block, GATE)
        yield OneArmLab(site, router, _laptop(lab, gate))


def _make_lan(lab: Lab, *hosts: tuple[LabHost, str, str]) -> None:
    """Connect hosts to one LAN with a switch: each with its device and its address."""
    switch = lab.host("switch")
    switch.run("ip", "link", "add", "room", "type", "bridge")
    switch.run("ip", "link", "set", "room", "up")
    for host, name, address in hosts:
        lab.wire((switch, host.name, ""), (host, name, f"{address}/22"))
        switch.run("ip", "link", "set", host.name, "master", "room")


def _laptop(lab: Lab, gate: LabHost) -> LabHost:
    """Connect a laptop to the gateway with a wire instead of OpenVPN."""
    laptop, block, own = lab.host("laptop"), _laptops().block(Transport.UDP), _laptops().address(Transport.UDP, 0)
    near, far = (IPv4Interface((address, block.prefixlen)) for address in (own, block[1]))
    lab.wire((laptop, "eth0", near), (gate, device(Transport.UDP), far))
    laptop.route("default", block[1])
    return laptop


def _laptops() -> LaptopGatewayPlan:
    laptops = laptop_gateway_at(LAB_PLAN, NAME)
    assert laptops
    return laptops
