"""Two sites with a direct tunnel, one of them behind NAT, from the fleet file to packets.

The router is Linux.
"""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import CONNECTED_SITES_TEXT, connected_sites_plan
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.sites import SitesLab, sites_lab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("direct-hidden")]
# It sorts second and would wait; because it is hidden, it dials.
PLAN = connected_sites_plan(CONNECTED_SITES_TEXT.replace("asn: 65010", "asn: 65010, behind_nat: true"))
CLEAR = "net 192.168.40.0/22 or net 192.168.60.0/24 or net 192.0.2.0/24"
# The hidden gateway notices that its peer was killed after 11.2 s (vpn.sites.gateway).
MOST_SECONDS = 25


@pytest.fixture(scope="module")
def running_lab() -> Iterator[SitesLab]:
    """Return two sites: the public one has dialled without success, and then the hidden one has dialled."""
    with sites_lab(PLAN, hidden={"cellar"}) as lab:
        for site in lab.sites:
            site.prepare()
        lab.attic.start()
        until(lambda: "retransmit 1" in lab.attic.gateway.log, 30, f"it is not dialled; {lab.log_tails}")
        assert not lab.attic.gateway.sas
        lab.cellar.start()
        lab.wait()
        until(lab.is_direct, 60, f"never took the direct way; {lab.log_tails}")
        yield lab


def test_a_hidden_gateway_dials_and_both_sites_reach_each_other(running_lab: SitesLab) -> None:
    """Only UDP between the two public addresses; the public end detects NAT."""
    with capture(running_lab.internet, "attic") as wire:
        assert running_lab.cellar.machine.pings(running_lab.attic.address, 10)
        assert running_lab.attic.machine.pings(running_lab.cellar.address, 10)

    between = f"udp port 4500 and host {running_lab.attic.site.public} and host {running_lab.cellar.site.public}"
    assert len(packets(wire, between)) >= 40
    assert not packets(wire, CLEAR)
    assert "remote host is behind NAT" in running_lab.attic.gateway.log


def test_one_tunnel_is_left(running_lab: SitesLab) -> None:
    """The public end may succeed through the connection that the other opened: two tunnels become one."""
    direct = [f"--list-sas --ike {site.gateway.gateway.tunnels[-1].name}".split() for site in running_lab.sites]

    def established() -> list[int]:
        both = zip(running_lab.sites, direct, strict=True)
        return [site.gateway.swanctl(*words).count("ESTABLISHED") for site, words in both]

    until(lambda: established() == [1, 1], 30, f"not one; {running_lab.log_tails}")


def test_the_hidden_gateway_dials_again_after_the_public_one_was_killed(running_lab: SitesLab) -> None:
    """When dead peer detection notices it; no packet is unencrypted."""
    with capture(running_lab.internet, "cellar") as wire:
        running_lab.attic.gateway.kill()
        running_lab.attic.gateway.start()
        assert running_lab.wait(90) <= MOST_SECONDS

    assert not packets(wire, CLEAR)
