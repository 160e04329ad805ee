"""Regions connected by their own gateways with certificates, from the fleet file to packets."""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import CONNECTED_REGIONS_TEXT, NORTH, PUBLIC, WEST, connected_regions_plan
from tests.testlab.keys.authority import LabAuthority, begun_for
from tests.testlab.keys.operator import INSIDE, MOST_SECONDS, running_regions, seen_of_pings
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.regions import RegionsLab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("regions-certificates")]
PLAN = connected_regions_plan(text=CONNECTED_REGIONS_TEXT.replace("vpn:\n", "vpn:\n  tunnels: {auth: certificates}\n"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LabAuthority:
    """Return the fleet's authority, which has issued certificates to both gateways."""
    return begun_for(PLAN, tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def running_lab(authority: LabAuthority) -> Iterator[RegionsLab]:
    """Return two regions with a tunnel established with certificates."""
    with running_regions(PLAN, authority.proofs) as lab:
        yield lab


def test_regions_reach_each_other_by_certificates(running_lab: RegionsLab) -> None:
    """Each end has verified the name of the other, and no packet is unencrypted."""
    wire = seen_of_pings(running_lab)

    for here, there in ((running_lab.west, NORTH), (running_lab.north, WEST)):
        assert f"authentication of 'laptops.{there}.pair.internal' with ECDSA" in here.gateway.log
    assert len(packets(wire, f"udp port 4500 and host {PUBLIC[WEST]}")) >= 12
    assert not packets(wire, INSIDE)


def test_a_revoked_region_is_rejected_until_it_has_a_new_certificate(
    running_lab: RegionsLab, authority: LabAuthority
) -> None:
    """Its peer rejects it with the revocation list, whichever end dials; the log has the reason."""
    authority.revoke(NORTH)
    authority.issue(NORTH)
    with capture(running_lab.internet, "us") as wire:
        # The compromised gateway keeps its certificate and loads no list.
        running_lab.west.bring(authority.proofs)
        running_lab.north.gateway.kill()
        running_lab.north.gateway.start()
        until(
            lambda: "certificate was revoked" in running_lab.west.gateway.log, 60, f"no reason; {running_lab.log_tails}"
        )
        was_kept_out = not running_lab.north.node.pings(running_lab.west.address, 2)
    running_lab.north.bring(authority.proofs)

    assert running_lab.wait(60) <= MOST_SECONDS
    assert was_kept_out
    assert not packets(wire, INSIDE)
