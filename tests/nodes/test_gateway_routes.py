"""Routes of a site gateway whose network is managed by systemd-networkd, across its restart and a reboot.

The BGP neighbour is a host on the other end of the tunnel devices; nothing is encrypted.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.machines.lab import substitute_ipsec, write_recorded_fleet
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator, push_tunnels
from tests.testlab.network.gateways import LabRouter
from tests.testlab.network.netlab import LabHost, capture, packets, pinging, until
from tests.testlab.network.sites import RACK, REGION, bgp_of

NAME, BLOCK = "gate.cellar", "10.64.0.0/16"
SITE = cellar_gateway()
# The site as the region sees it.
REGION_SITE = replace(SITE, tunnels=tuple(tunnel for tunnel in SITE.tunnels if tunnel.name.startswith(REGION)))
RESTART = "systemctl restart systemd-networkd; /lib/systemd/systemd-networkd-wait-online --timeout=30; sleep 2"


@pytest.fixture
def gateway(node_lab: NodeLab) -> Node:
    """Return the site's gateway, with its tunnels."""
    node = node_lab.boot(NAME, "192.168.40.1")
    substitute_ipsec(node)
    operator = Operator(node_lab, write_recorded_fleet(node_lab.folder))
    assert operator.changes(NAME, "--role", "baseline", "--role", "guard", "--role", "vpnagent")[NAME]
    push_tunnels(node, SITE)
    source = str(node_lab.workstation.address)
    node_lab.workstation.host.run("ip", "route", "add", BLOCK, "via", str(node.address), "src", source)
    return node


@pytest.fixture
def neighbour(node_lab: NodeLab, gateway: Node) -> Iterator[LabHost]:
    """Yield the BGP neighbour of all tunnels, which has a machine's address."""
    host = node_lab.network.host("aws")
    host.run("ip", "address", "add", f"{RACK}/32", "dev", "lo")
    connect(node_lab, gateway, host)
    router = LabRouter(host)
    router.start(bgp_of(REGION_SITE, (BLOCK,)))
    wait_for_bgp(gateway)
    yield host
    router.stop()


def connect(node_lab: NodeLab, node: Node, neighbour: LabHost) -> None:
    """Connect the neighbour to the tunnel devices, once they exist."""
    devices = {tunnel.device for tunnel in REGION_SITE.tunnels}
    until(lambda: devices <= set(node.run("ip -brief link | cut -d' ' -f1").split()), 60, "no tunnel devices")
    for number, tunnel in enumerate(REGION_SITE.tunnels):
        device = f"t{number}"
        node_lab.network.wire((neighbour, device, str(tunnel.far.inside)), (node_lab.hosts[NAME], device, ""))
        node.run(f"ip link set {device} master {tunnel.device}")


def routes(node: Node, protocol: str) -> str:
    """Return the routes of a protocol."""
    return node.run(f"ip route show proto {protocol}")


def wait_for_bgp(node: Node) -> None:
    """Wait for the route that the neighbour announces."""
    until(lambda: BLOCK in routes(node, "bgp"), 60, "BGP announces no route")


def leaked(file: Path, node: Node) -> list[str]:
    """Return the captured packets to the region's block that the node sent on its LAN."""
    mac = node.run("ip -brief link show eth0").split()[2]
    return [*packets(file, f"ether src {mac} and dst net {BLOCK}")]


def test_routes_survive_networkd_and_a_reboot(gateway: Node, neighbour: LabHost, node_lab: NodeLab) -> None:
    """Guard and BGP routes stay when networkd restarts and return after a reboot; no packet is sent unencrypted."""
    workstation = gateway.workstation.host
    first = [routes(gateway, protocol) for protocol in ("98", "bgp")]
    with capture(workstation, "n1") as wire:
        pings = pinging(workstation, RACK)
        pings.wait_for_answer(10)
        gateway.run(RESTART)
        restarted = [routes(gateway, protocol) for protocol in ("98", "bgp")]
        pings.wait_for_answer(10)
        gateway.restart()
        rebooted = routes(gateway, "98")
        connect(node_lab, gateway, neighbour)
        wait_for_bgp(gateway)
        pings.wait_for_answer(10)
        pings.stop()

    assert "unreachable 10.64.0.0/15" in first[0]
    assert (restarted, rebooted) == (first, first[0])
    assert packets(wire, f"dst {RACK}")
    assert leaked(wire, gateway) == []
