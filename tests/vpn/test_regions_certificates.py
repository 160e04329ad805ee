"""Regions connected by their own gateways with certificates, from the fleet file to packets."""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import CONNECTED_REGIONS_TEXT, NORTH, PUBLIC, WEST, connected_regions_plan
from tests.testlab.keys.authority import LabAuthority, begun_for
from tests.testlab.keys.operator import INSIDE, MOST_SECONDS, seen_of_pings, standing_regions
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.regions import RegionsLab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("regions-certificates")]
PLAN = connected_regions_plan(text=CONNECTED_REGIONS_TEXT.replace("vpn:\n", "vpn:\n  tunnels: {auth: certificates}\n"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LabAuthority:
    """Return the fleet's authority, which has issued certificates to both gateways."""
    return begun_for(PLAN, tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def stands(authority: LabAuthority) -> Iterator[RegionsLab]:
    """Return two regions with a tunnel established with certificates."""
    with standing_regions(PLAN, authority.proofs) as lab:
        yield lab


def test_regions_reach_each_other_by_certificates(stands: RegionsLab) -> None:
    """Each end has verified the name of the other, and no packet is unencrypted."""
    wire = seen_of_pings(stands)

    for here, there in ((stands.west, NORTH), (stands.north, WEST)):
        assert f"authentication of 'laptops.{there}.pair.internal' with ECDSA" in here.gateway.log
    assert len(packets(wire, f"udp port 4500 and host {PUBLIC[WEST]}")) >= 12
    assert not packets(wire, INSIDE)


def test_a_revoked_region_is_rejected_until_it_has_a_new_certificate(
    stands: RegionsLab, authority: LabAuthority
) -> None:
    """Its peer rejects it with the revocation list, whichever end dials; the log has the reason."""
    authority.revoke(NORTH)
    authority.issue(NORTH)
    with capture(stands.internet, "us") as wire:
        # The compromised gateway keeps its certificate and loads no list.
        stands.west.bring(authority.proofs)
        stands.north.gateway.kill()
        stands.north.gateway.start()
        until(lambda: "certificate was revoked" in stands.west.gateway.log, 60, f"no reason; {stands.log_tails}")
        was_kept_out = not stands.north.node.pings(stands.west.address, 2)
    stands.north.bring(authority.proofs)

    assert stands.wait(60) <= MOST_SECONDS
    assert was_kept_out
    assert not packets(wire, INSIDE)
