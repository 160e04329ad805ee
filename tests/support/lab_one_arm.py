"""A site whose gateway has one arm: LAN and internet by one interface, behind a router that translates.

 laptop
   |
  gate --+
         +-- router == internet == aws -- rack
  desk --+

The router is a plain one of Linux: it leads what is for the fleet's blocks to the gateway, and passes nothing on to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface

from bedplate.plan.laptops import LaptopGateway, Transport, gateway_in
from bedplate.plan.nodes import standing_nodes
from roles.hardened.filter import ruleset
from tests.support.lab_site import DESK, SiteLab, opposite_aws, reach_internet
from tests.support.netlab import Lab, LabHost
from tests.support.site_side import LAB
from vpn.laptops.guard import guard_rules
from vpn.laptops.server import device

NAME, GATE, ROUTER = "cellar", "192.168.40.1", "192.168.40.2"
_TRANSLATION = 'table ip lab { chain out { type nat hook postrouting priority 100; oifname "wan0" masquerade; }; }'
_STATE = "table ip lab { chain through { type filter hook forward priority 0; ct state invalid drop; }; }"


@dataclass(frozen=True)
class OneArmLab:
    """The laboratory: the site with AWS's stand-in, its router, and a laptop at its gateway."""

    site: SiteLab
    router: LabHost
    laptop: LabHost

    @property
    def gate(self) -> LabHost:
        """The machine that is the gateway."""
        return self.site.site.host

    def keep_state(self) -> None:
        """Let the router drop what belongs to no connection that it saw begin, as routers of homes and offices do."""
        self.router.load_rules(_STATE)

    def start(self) -> None:
        """Load each packet filter of the gateway, start both ends, and wait until packets pass."""
        (node,) = (each for each in standing_nodes(LAB) if each.name == f"gate.{NAME}")
        for rules in (ruleset(node.doors, node.duties), guard_rules(_laptops())):
            self.gate.load_rules(rules)
        self.site.start()
        self.site.wait()


@contextmanager
def one_arm_lab() -> Iterator[OneArmLab]:
    """Give the laboratory, wired, with nothing started yet."""
    with Lab("onearm") as lab:
        router, gate, desk, internet = (lab.host(name) for name in ("router", "gate", "desk", "internet"))
        reach_internet(lab, internet, router)
        _room(lab, (router, "lan0", ROUTER), (gate, "eth0", GATE), (desk, "eth0", DESK))
        for host in (gate, desk):
            host.route("default", ROUTER)
        router.forward()
        router.load_rules(_TRANSLATION)
        site = opposite_aws(lab, gate, internet, desk)
        _, *pools = site.site.gateway.blocks
        for block in (*site.site.gateway.elsewhere, *pools):
            router.route(block, GATE)
        yield OneArmLab(site, router, _laptop(lab, gate))


def _room(lab: Lab, *hosts: tuple[LabHost, str, str]) -> None:
    """Put hosts on one LAN, by a switch that knows nothing: each with its device and its address."""
    switch = lab.host("switch")
    switch.run("ip", "link", "add", "room", "type", "bridge")
    switch.run("ip", "link", "set", "room", "up")
    for host, name, address in hosts:
        lab.wire((switch, host.name, ""), (host, name, f"{address}/22"))
        switch.run("ip", "link", "set", host.name, "master", "room")


def _laptop(lab: Lab, gate: LabHost) -> LabHost:
    """Stand a laptop at the gateway, by a wire in the place of OpenVPN's tunnel."""
    laptop, block, own = lab.host("laptop"), _laptops().block(Transport.UDP), _laptops().address(Transport.UDP, 0)
    near, far = (IPv4Interface((address, block.prefixlen)) for address in (own, block[1]))
    lab.wire((laptop, "eth0", near), (gate, device(Transport.UDP), far))
    laptop.route("default", block[1])
    return laptop


def _laptops() -> LaptopGateway:
    laptops = gateway_in(LAB, NAME)
    assert laptops
    return laptops
