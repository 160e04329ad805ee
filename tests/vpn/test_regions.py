"""Regions joined by their own gateways, from a fleet file to packets: real daemons, behind translated addresses.

AWS's part, routes and elastic addresses, is played by a router in each region.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.plan.laptops import Transport, gateway_in
from tests.testlab.fleets.variants import PUBLIC, WEST, joined_plan
from tests.testlab.keys.operator import INSIDE, MOST_SECONDS, seen_of_pings, standing_regions
from tests.testlab.network.netlab import capture, packets, refusal, until
from tests.testlab.network.regions import RegionsLab
from vpn.keeper.status import read_charon

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("regions")]


@pytest.fixture(scope="module")
def stands() -> Iterator[RegionsLab]:
    """Give two regions whose tunnel stands."""
    with standing_regions(joined_plan()) as made:
        yield made


def test_nodes_reach_each_other_and_nothing_is_in_the_clear(stands: RegionsLab) -> None:
    """Both ways, through the tunnel alone: the internet sees UDP between two public addresses."""
    wire = seen_of_pings(stands)

    assert not packets(wire, INSIDE)
    assert len(packets(wire, f"udp port 4500 and host {PUBLIC[WEST]}")) >= 12
    assert not packets(wire, "ip and not udp port 4500 and not udp port 500")


def test_a_laptop_is_carried_on_to_the_other_region(stands: RegionsLab) -> None:
    """From the gateway that it dialled; under its own address, which the other region's nodes answer."""
    with capture(stands.north.node, "eth0") as wire:
        assert stands.laptop.pings(stands.north.address)

    laptops = gateway_in(joined_plan(), WEST)
    assert laptops
    assert packets(wire, f"src {laptops.address(Transport.UDP, 0)}")


def test_nobody_opens_a_connection_to_a_laptop(stands: RegionsLab) -> None:
    """Not through the tunnel, and not from its own region's nodes, though AWS brings both as far as the gateway.

    Without the gateway's filter both would get there.
    """
    laptops = gateway_in(joined_plan(), WEST)
    assert laptops
    address, table = laptops.address(Transport.UDP, 0), ("inet", "bedplate_laptops")
    gateway, nodes = stands.west.gateway.host, (stands.west.node, stands.north.node)
    rules = gateway.run("nft", "list", "table", *table)

    refused = [not node.pings(address) for node in nodes]
    gateway.run("nft", "delete", "table", *table)
    through = [node.pings(address) for node in nodes]
    gateway.load_rules(rules)

    assert (refused, through) == ([True, True], [True, True])


def test_a_tunnel_is_never_silent(stands: RegionsLab) -> None:
    """With nobody about, gateways say a word through it, so that one which carries nothing shows."""
    places = [one.gateway.places for one in (stands.west, stands.north)]

    def received() -> list[int]:
        statuses = [read_charon(Path(each.table), Path(each.run) / "tunnels.vici") for each in places]
        return [tunnel.received for status in statuses for tunnel in status.tunnels or ()]

    before = received()
    until(lambda: all(now > then for now, then in zip(received(), before, strict=True)), 40, "nobody says a word")
    assert len(before) == 2


def test_what_has_no_tunnel_goes_nowhere(stands: RegionsLab) -> None:
    """With one gateway's daemon gone who asks is told there; no packet is on the internet; it heals by itself."""
    with capture(stands.internet, "us") as wire:
        stands.west.gateway.kill()
        told = [refusal(each, stands.north.address, 4) for each in (stands.west.node, stands.laptop)]
    assert all("Destination Host Unreachable" in each for each in told)
    assert not packets(wire, INSIDE)

    stands.west.gateway.start()
    assert stands.wait(60) <= MOST_SECONDS


def test_a_new_key_ends_no_tunnel_that_stands(stands: RegionsLab) -> None:
    """Both ends read it as they run; the next tunnel is built by it, and never while one end alone has it."""
    before = [each.gateway.swanctl("--list-sas").splitlines()[0] for each in (stands.west, stands.north)]

    stands.west.renew()
    stands.north.renew()
    assert stands.west.node.pings(stands.north.address)
    after = [each.gateway.swanctl("--list-sas").splitlines()[0] for each in (stands.west, stands.north)]
    assert after == before

    stands.west.renew("a third key")
    stands.west.gateway.kill()
    stands.west.gateway.start()
    assert not stands.west.node.pings(stands.north.address, 2)
    stands.north.renew("a third key")
    assert stands.wait(60)
