"""A site's gateway with one interface, behind a NAT router in the same LAN."""

import sys
from collections.abc import Iterator

import pytest

from tests.testlab.network.netlab import LabHost, capture, megabits, packets, until
from tests.testlab.network.sites import DESK, GATE, RACK, OneArmLab, one_arm_lab
from vpn.sites.files import PROTOCOL

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("one-arm")]
INSIDE = "net 10.0.0.0/8 or net 192.168.0.0/16"
# An internet host that is no end of a tunnel.
INTERNET = "203.0.113.1"
REDIRECT = f"icmp[icmptype] == icmp-redirect and src {GATE}"


_ECHO = (
    f"import socket; s = socket.create_server(('{RACK}', 7)); print('listens', flush=True)\n"
    "c = s.accept()[0]; c.sendall(c.recv(9))"
)
_SAY = (
    f"import socket, sys; s = socket.create_connection(('{RACK}', 7), 3)\n"
    "s.sendall(b'word'); sys.exit(s.recv(9) != b'word')"
)


@pytest.fixture(scope="module")
def running_lab() -> Iterator[OneArmLab]:
    """Return a site whose gateway reaches its region through the LAN's router."""
    with one_arm_lab() as lab:
        lab.start()
        yield lab


def test_machines_and_laptops_reach_the_region_encrypted(running_lab: OneArmLab) -> None:
    """Both ways, with TCP too; the internet sees only UDP between the router's address and AWS's."""
    desk, rack = running_lab.site.desk, running_lab.site.rack
    with capture(running_lab.router, "wan0") as wire:
        _reaches(desk, RACK)
        _reaches(rack, DESK)
        _reaches(running_lab.laptop, RACK)
        streams = megabits(desk, rack, RACK, 1), megabits(rack, desk, DESK, 1)

    assert min(streams) > 1
    assert packets(wire, "udp port 4500")
    assert not packets(wire, INSIDE)
    assert not packets(wire, "ip and not udp port 4500 and not udp port 500")


def test_laptops_reach_the_lan_and_not_the_other_way(running_lab: OneArmLab) -> None:
    """Replies pass through the router; new connections to laptops end at the gateway."""
    (laptop,) = running_lab.laptop.run("hostname", "-I").split()

    _reaches(running_lab.laptop, DESK)
    assert not running_lab.site.desk.pings(laptop, 1)


def test_a_gateway_can_be_the_default_route_of_its_lan(running_lab: OneArmLab) -> None:
    """It forwards to the internet without redirects. A stateful router that forwards to the gateway breaks TCP."""
    desk, rack = running_lab.site.desk, running_lab.site.rack
    running_lab.keep_state()
    desk.run("sysctl", "-qw", "net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.eth0.accept_redirects=0")
    desk.run("ip", "route", "flush", "cache")
    _reaches(desk, RACK)
    assert not _exchanges_tcp(desk, rack)

    desk.route("default", GATE)
    with capture(running_lab.gate, "eth0") as wire:
        _reaches(desk, INTERNET)
        assert _exchanges_tcp(desk, rack)

    assert packets(wire, f"src {DESK} and dst {INTERNET}")
    assert not packets(wire, REDIRECT)


def test_without_tunnels_the_gateway_rejects_packets_and_sends_no_redirects(running_lab: OneArmLab) -> None:
    """Without guard and last routes, packets would loop between router and gateway."""
    desk, gate = running_lab.site.desk, running_lab.gate
    desk.route("default", GATE)
    running_lab.site.site.kill()
    until(lambda: "10.64.0.0/16" not in running_lab.site.routes, 40, "BGP still tells of the region")

    with capture(gate, "eth0") as at_gate, capture(running_lab.router, "lan0") as at_router:
        assert not desk.pings(RACK)
        assert not running_lab.laptop.pings(RACK)
    gate.run("nft", "delete", "table", "inet", "bedplate_guard")
    gate.run("ip", "route", "flush", "proto", str(PROTOCOL))
    gate.run("sysctl", "-qw", "net.ipv4.conf.eth0.send_redirects=1")
    with capture(gate, "eth0") as at_gate_without, capture(running_lab.router, "lan0") as at_router_without:
        desk.pings(RACK)

    assert packets(at_gate, f"icmp[icmptype] == icmp-unreach and src {GATE} and dst {DESK}")
    assert not packets(at_gate, REDIRECT)
    assert not packets(at_router, f"dst {RACK}")
    assert packets(at_gate_without, REDIRECT)
    assert len(packets(at_router_without, f"dst {RACK}")) > 3


def _reaches(host: LabHost, address: str) -> None:
    until(lambda: host.pings(address, 1), 20, f"{host.name} does not reach {address}")


def _exchanges_tcp(client: LabHost, server: LabHost) -> bool:
    """Return whether client and server can exchange data by TCP."""
    listener = server.start(sys.executable, "-c", _ECHO, log=f"echo-{len(server.programs)}.log")
    until(lambda: "listens" in listener.output, 20, "nobody listens")
    talks = client.tries(sys.executable, "-c", _SAY, seconds=30)
    listener.end()
    return talks
