"""Two sites with a direct tunnel, from the fleet file to packets, with real daemons.

A stand-in for AWS also connects both sites, by BGP.
"""

from collections.abc import Iterator
from time import time

import pytest

from tests.testlab.fleets.variants import connected_sites_plan
from tests.testlab.network.netlab import capture, packets, pinging, until
from tests.testlab.network.sites import SitesLab, sites_lab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("direct")]
CLEAR = "net 192.168.40.0/22 or net 192.168.60.0/24"
# Limit in docs/vpn-sites.md: BGP's hold time of 12 s, and a margin for a busy machine.
MOST_SECONDS = 15


@pytest.fixture(scope="module")
def running_lab() -> Iterator[SitesLab]:
    """Return two sites with an established direct tunnel, and the path through AWS."""
    with sites_lab(connected_sites_plan()) as lab:
        lab.start()
        lab.wait()
        until(lab.is_direct, 60, f"never took the direct way; {lab.log_tails}")
        yield lab


def test_sites_use_the_direct_tunnel_and_encrypt_all_packets(running_lab: SitesLab) -> None:
    """Both ways between the two public addresses; AWS carries none of it."""
    with capture(running_lab.internet, "attic") as wire, capture(running_lab.internet, "a0") as round_about:
        assert running_lab.cellar.machine.pings(running_lab.attic.address, 20)
        assert running_lab.attic.machine.pings(running_lab.cellar.address, 20)

    between = f"udp port 4500 and host {running_lab.attic.site.public} and host {running_lab.cellar.site.public}"
    assert len(packets(wire, between)) >= 80
    assert not packets(wire, CLEAR)
    # Keepalives of tunnels and BGP are a few packets in some seconds.
    assert len(packets(round_about)) < 40


def test_aws_carries_the_traffic_while_the_direct_tunnel_is_cut(running_lab: SitesLab) -> None:
    """Within BGP's hold time, without unencrypted packets; the direct tunnel is used again when it is up."""
    with capture(running_lab.internet, "attic") as wire, capture(running_lab.internet, "cellar") as other:
        pings = pinging(running_lab.cellar.machine, running_lab.attic.address)
        pings.wait_for_answer(10)
        running_lab.cut_direct()
        moment = time()
        until(
            lambda: any(reply_time > moment + 1 for reply_time in pings.answers.times),
            60,
            f"no way round; {running_lab.log_tails}",
        )
        was_direct = running_lab.is_direct()
        running_lab.heal()
        until(running_lab.is_direct, 90, f"the direct way is not taken again; {running_lab.log_tails}")
        answers = pings.stop()

    assert not was_direct
    assert answers.longest <= MOST_SECONDS
    assert not packets(wire, CLEAR)
    assert not packets(other, CLEAR)


def test_without_a_tunnel_packets_are_dropped(running_lab: SitesLab) -> None:
    """With a gateway's daemons stopped, no packet is on the internet; the connection recovers."""
    with capture(running_lab.internet, "attic") as wire, capture(running_lab.internet, "cellar") as other:
        running_lab.attic.gateway.kill()
        assert not running_lab.attic.machine.pings(running_lab.cellar.address, 2)
        until(lambda: not running_lab.cellar.machine.pings(running_lab.attic.address, 1), 30, "who carries it?")
        assert not packets(wire, CLEAR)
        running_lab.attic.gateway.start()
        running_lab.wait(90)

    assert not packets(wire, CLEAR)
    assert not packets(other, CLEAR)
