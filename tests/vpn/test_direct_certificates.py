"""Two joined sites that know each other by certificates, from a fleet file and its authority to packets.

Each paper is the product's own, by way of the fleet's folder of keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.testlab.fleets.variants import ATTIC, CELLAR, TEXT, direct_plan
from tests.testlab.keys.authority import LabAuthority, begun_for
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.sites import LabSite, SitesLab, first_only, sites_lab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("direct-certificates")]
PLAN = direct_plan(TEXT + "vpn: {tunnels: {auth: certificates}}\n")
CLEAR = "net 192.168.40.0/22 or net 192.168.60.0/24"


@dataclass(frozen=True)
class Office:
    """The fleet's authority, and the laboratory whose gateways hang on it."""

    authority: LabAuthority
    lab: SitesLab

    def bring(self, site: LabSite) -> None:
        """Bring a gateway its papers of now, as the keeper does: its charons read them as they run."""
        site.gateway.gateway = first_only(PLAN, site.site.name, self.authority.proofs)
        site.gateway.lay()
        site.gateway.load()

    def stands(self) -> bool:
        """Tell whether the direct tunnel has an association at the site that dials."""
        return any(
            line.startswith("cellar-site:") for line in self.lab.attic.gateway.swanctl("--list-sas").splitlines()
        )


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Give two sites whose direct tunnel stands by certificates."""
    authority = begun_for(PLAN, tmp_path_factory.mktemp("keys"))
    with sites_lab(PLAN, authority.proofs) as lab:
        lab.start()
        lab.wait()
        until(lab.is_direct, 60, f"never took the direct way; {lab.told}")
        yield Office(authority, lab)


def test_sites_reach_each_other_by_certificates(office: Office) -> None:
    """Both ways, directly, and nothing in the clear."""
    lab = office.lab
    with capture(lab.internet, "attic") as wire:
        assert lab.cellar.machine.pings(lab.attic.address)
        assert lab.attic.machine.pings(lab.cellar.address)

    assert "tunnels.cellar.rooms.internal' with ECDSA" in lab.attic.gateway.log
    assert not packets(wire, CLEAR)


def test_a_new_certificate_ends_no_tunnel_that_stands(office: Office) -> None:
    """Both ends take it as they run, and the next tunnel is built by it."""
    lab = office.lab
    before = lab.attic.gateway.swanctl("--list-sas").splitlines()[0]
    for place, site in ((ATTIC, lab.attic), (CELLAR, lab.cellar)):
        office.authority.issue(place)
        office.bring(site)
    after = lab.attic.gateway.swanctl("--list-sas").splitlines()[0]

    lab.attic.gateway.kill()
    lab.attic.gateway.start()
    until(lab.is_direct, 90, f"not built by the new certificates; {lab.told}")

    assert before == after
    assert lab.cellar.machine.pings(lab.attic.address)


def test_a_revoked_gateway_is_kept_out_and_its_next_certificate_is_not(office: Office) -> None:
    """With the list at its peer no tunnel is built by what was revoked, for a reason that is in the log."""
    lab = office.lab
    office.authority.revoke(ATTIC)
    with capture(lab.internet, "attic") as wire:
        # The gateway that was broken into keeps what it has, and does not take the list.
        office.authority.issue(ATTIC)
        office.bring(lab.cellar)
        lab.attic.gateway.kill()
        lab.attic.gateway.start()
        until(lambda: "certificate was revoked" in lab.cellar.gateway.log, 60, f"no reason; {lab.told}")
        was_kept_out = not office.stands() and not lab.is_direct()
    office.bring(lab.attic)
    until(lab.is_direct, 90, f"the next certificate does not serve; {lab.told}")

    assert was_kept_out
    assert not packets(wire, CLEAR)
