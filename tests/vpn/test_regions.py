"""Regions connected by their own gateways, from the fleet file to packets, with real daemons behind NAT.

A router in each region acts as AWS, with routes and elastic addresses.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.plan.laptops import Transport, laptop_gateway_at
from bedplate.programs.gateway.status import read_charon
from tests.testlab.fleets.variants import PUBLIC, WEST, connected_regions_plan
from tests.testlab.keys.operator import INSIDE, MOST_SECONDS, running_regions, seen_of_pings
from tests.testlab.network.netlab import capture, packets, refusal, until
from tests.testlab.network.regions import RegionsLab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("regions")]


@pytest.fixture(scope="module")
def running_lab() -> Iterator[RegionsLab]:
    """Return two regions with an established tunnel."""
    with running_regions(connected_regions_plan()) as lab:
        yield lab


def test_nodes_reach_each_other_encrypted(running_lab: RegionsLab) -> None:
    """The internet sees only UDP between two public addresses."""
    wire = seen_of_pings(running_lab)

    assert not packets(wire, INSIDE)
    assert len(packets(wire, f"udp port 4500 and host {PUBLIC[WEST]}")) >= 12
    assert not packets(wire, "ip and not udp port 4500 and not udp port 500")


def test_a_laptop_reaches_the_other_region(running_lab: RegionsLab) -> None:
    """Through the gateway that it dialled, with its own address."""
    with capture(running_lab.north.node, "eth0") as wire:
        assert running_lab.laptop.pings(running_lab.north.address)

    laptops = laptop_gateway_at(connected_regions_plan(), WEST)
    assert laptops
    assert packets(wire, f"src {laptops.address(Transport.UDP, 0)}")


def test_nodes_cannot_open_a_connection_to_a_laptop(running_lab: RegionsLab) -> None:
    """Neither through the tunnel nor from its own region; without the gateway's filter both would succeed."""
    laptops = laptop_gateway_at(connected_regions_plan(), WEST)
    assert laptops
    address, table = laptops.address(Transport.UDP, 0), ("inet", "bedplate_laptops")
    gateway, nodes = running_lab.west.gateway.host, (running_lab.west.node, running_lab.north.node)
    rules = gateway.run("nft", "list", "table", *table)

    refused = [not node.pings(address) for node in nodes]
    gateway.run("nft", "delete", "table", *table)
    through = [node.pings(address) for node in nodes]
    gateway.load_rules(rules)

    assert (refused, through) == ([True, True], [True, True])


def test_a_tunnel_is_never_silent(running_lab: RegionsLab) -> None:
    """Gateways ping through an idle tunnel, so that one that drops everything is noticed."""
    places = [region.gateway.places for region in (running_lab.west, running_lab.north)]

    def received() -> list[int]:
        statuses = [read_charon(Path(place.table), Path(place.run) / "tunnels.vici") for place in places]
        return [tunnel.received for status in statuses for tunnel in status.tunnels or ()]

    before = received()
    until(lambda: all(now > then for now, then in zip(received(), before, strict=True)), 40, "no packet is received")
    assert len(before) == 2


def test_without_a_tunnel_packets_are_rejected(running_lab: RegionsLab) -> None:
    """The sender gets an ICMP error, no packet is on the internet, and the connection recovers."""
    with capture(running_lab.internet, "us") as wire:
        running_lab.west.gateway.kill()
        outputs = [refusal(host, running_lab.north.address, 4) for host in (running_lab.west.node, running_lab.laptop)]
    assert all("Destination Host Unreachable" in output for output in outputs)
    assert not packets(wire, INSIDE)

    running_lab.west.gateway.start()
    assert running_lab.wait(60) <= MOST_SECONDS


def test_a_new_key_does_not_interrupt_a_tunnel(running_lab: RegionsLab) -> None:
    """Both ends load it while they run; a new tunnel needs it at both ends."""
    before = [region.gateway.swanctl("--list-sas").splitlines()[0] for region in (running_lab.west, running_lab.north)]

    running_lab.west.renew()
    running_lab.north.renew()
    assert running_lab.west.node.pings(running_lab.north.address)
    after = [region.gateway.swanctl("--list-sas").splitlines()[0] for region in (running_lab.west, running_lab.north)]
    assert after == before

    running_lab.west.renew("a third key")
    running_lab.west.gateway.kill()
    running_lab.west.gateway.start()
    assert not running_lab.west.node.pings(running_lab.north.address, 2)
    running_lab.north.renew("a third key")
    assert running_lab.wait(60)
