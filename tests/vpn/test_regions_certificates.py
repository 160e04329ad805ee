"""Regions joined by their own gateways that know each other by certificates: from a fleet file to packets."""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import JOINED_FLEET_TEXT, NORTH, PUBLIC, WEST, joined_plan
from tests.testlab.keys.authority import LabAuthority, begun_for
from tests.testlab.keys.operator import INSIDE, MOST_SECONDS, seen_of_pings, standing_regions
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.regions import RegionsLab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("regions-certificates")]
PLAN = joined_plan(text=JOINED_FLEET_TEXT.replace("vpn:\n", "vpn:\n  tunnels: {auth: certificates}\n"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LabAuthority:
    """Begin the fleet's authority, which has issued to both gateways."""
    return begun_for(PLAN, tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def stands(authority: LabAuthority) -> Iterator[RegionsLab]:
    """Give two regions whose tunnel stands by certificates."""
    with standing_regions(PLAN, authority.proofs) as made:
        yield made


def test_regions_reach_each_other_by_certificates(stands: RegionsLab) -> None:
    """Both ways between the two public addresses; each has seen the name of the other, and nothing is in the clear."""
    wire = seen_of_pings(stands)

    for here, there in ((stands.west, NORTH), (stands.north, WEST)):
        assert f"authentication of 'laptops.{there}.pair.internal' with ECDSA" in here.gateway.log
    assert len(packets(wire, f"udp port 4500 and host {PUBLIC[WEST]}")) >= 12
    assert not packets(wire, INSIDE)


def test_a_region_that_is_revoked_is_kept_out_until_it_has_another_certificate(
    stands: RegionsLab, authority: LabAuthority
) -> None:
    """By the list at its peer, for a reason that is in the log; whoever dials."""
    authority.revoke(NORTH)
    authority.issue(NORTH)
    with capture(stands.internet, "us") as wire:
        # The gateway that was broken into keeps what it has, and takes no list.
        stands.west.bring(authority.proofs)
        stands.north.gateway.kill()
        stands.north.gateway.start()
        until(lambda: "certificate was revoked" in stands.west.gateway.log, 60, f"no reason; {stands.told}")
        was_kept_out = not stands.north.node.pings(stands.west.address, 2)
    stands.north.bring(authority.proofs)

    assert stands.wait(60) <= MOST_SECONDS
    assert was_kept_out
    assert not packets(wire, INSIDE)
