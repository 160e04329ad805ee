"""Two joined sites, one behind a router that translates and hands it nobody's first packet: from file to packets.

The router is a plain one of Linux.
"""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import TEXT, direct_plan
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.sites import SitesLab, sites_lab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("direct-hidden")]
# The second in the alphabet, which would wait: hidden, it dials.
PLAN = direct_plan(TEXT.replace("asn: 65010", "asn: 65010, behind_nat: true"))
CLEAR = "net 192.168.40.0/22 or net 192.168.60.0/24 or net 192.0.2.0/24"
# A gateway that answers and was killed is missed after 11.2 s (vpn.sites.gateway) by one that nobody can dial.
MOST_SECONDS = 25


@pytest.fixture(scope="module")
def stands() -> Iterator[SitesLab]:
    """Give two sites of which the one that can be dialled has dialled in vain, and the hidden one has dialled since."""
    with sites_lab(PLAN, hidden={"cellar"}) as made:
        for site in made.sites:
            site.prepare()
        made.attic.start()
        until(lambda: "retransmit 1" in made.attic.gateway.log, 30, f"it is not dialled; {made.told}")
        assert not made.attic.gateway.sas
        made.cellar.start()
        made.wait()
        until(made.is_direct, 60, f"never took the direct way; {made.told}")
        yield made


def test_a_hidden_gateway_dials_and_both_sites_reach_each_other(stands: SitesLab) -> None:
    """Between the two public addresses, by UDP alone; who was dialled knows that there is translation between."""
    with capture(stands.internet, "attic") as wire:
        assert stands.cellar.machine.pings(stands.attic.address, 10)
        assert stands.attic.machine.pings(stands.cellar.address, 10)

    between = f"udp port 4500 and host {stands.attic.site.public} and host {stands.cellar.site.public}"
    assert len(packets(wire, between)) >= 40
    assert not packets(wire, CLEAR)
    assert "remote host is behind NAT" in stands.attic.gateway.log


def test_one_tunnel_is_left(stands: SitesLab) -> None:
    """Who dialled in vain goes on for a while, and may get in by what the other opened: two become one."""
    direct = [f"--list-sas --ike {one.gateway.gateway.tunnels[-1].name}".split() for one in stands.sites]

    def standing() -> list[int]:
        both = zip(stands.sites, direct, strict=True)
        return [one.gateway.swanctl(*words).count("ESTABLISHED") for one, words in both]

    until(lambda: standing() == [1, 1], 30, f"not one; {stands.told}")


def test_when_who_is_dialled_was_killed_the_hidden_one_dials_again(stands: SitesLab) -> None:
    """As soon as it misses it; nothing is in the clear meanwhile."""
    with capture(stands.internet, "cellar") as wire:
        stands.attic.gateway.kill()
        stands.attic.gateway.start()
        assert stands.wait(90) <= MOST_SECONDS

    assert not packets(wire, CLEAR)
