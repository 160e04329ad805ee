"""Two sites with a direct tunnel and certificates, from the fleet file and its authority to packets."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.testlab.fleets.variants import ATTIC, CELLAR, CONNECTED_SITES_TEXT, connected_sites_plan
from tests.testlab.keys.authority import LabAuthority, begun_for
from tests.testlab.network.netlab import capture, packets, until
from tests.testlab.network.sites import LabSite, SitesLab, first_only, sites_lab

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("direct-certificates")]
PLAN = connected_sites_plan(CONNECTED_SITES_TEXT + "vpn: {tunnels: {auth: certificates}}\n")
CLEAR = "net 192.168.40.0/22 or net 192.168.60.0/24"


@dataclass(frozen=True)
class CertificateLab:
    """The fleet's authority, and the laboratory of its gateways."""

    authority: LabAuthority
    lab: SitesLab

    def bring(self, site: LabSite) -> None:
        """Send a gateway its present certificates, as the gateway agent does; charon loads them while it runs."""
        site.gateway.gateway = first_only(PLAN, site.site.name, self.authority.proofs)
        site.gateway.apply_config()
        site.gateway.load()

    def is_established(self) -> bool:
        """Return whether the direct tunnel has an association at the site that dials."""
        return any(
            line.startswith("cellar-site:") for line in self.lab.attic.gateway.swanctl("--list-sas").splitlines()
        )


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertificateLab]:
    """Return two sites with a direct tunnel established with certificates."""
    authority = begun_for(PLAN, tmp_path_factory.mktemp("keys"))
    with sites_lab(PLAN, authority.proofs) as lab:
        lab.start()
        lab.wait()
        until(lab.is_direct, 60, f"never took the direct way; {lab.log_tails}")
        yield CertificateLab(authority, lab)


def test_sites_reach_each_other_by_certificates(certified: CertificateLab) -> None:
    """Both ways, directly, and encrypted."""
    lab = certified.lab
    with capture(lab.internet, "attic") as wire:
        assert lab.cellar.machine.pings(lab.attic.address)
        assert lab.attic.machine.pings(lab.cellar.address)

    assert "tunnels.cellar.rooms.internal' with ECDSA" in lab.attic.gateway.log
    assert not packets(wire, CLEAR)


def test_a_new_certificate_does_not_interrupt_a_tunnel(certified: CertificateLab) -> None:
    """Both ends load it while they run, and the next tunnel uses it."""
    lab = certified.lab
    before = lab.attic.gateway.swanctl("--list-sas").splitlines()[0]
    for place, site in ((ATTIC, lab.attic), (CELLAR, lab.cellar)):
        certified.authority.issue(place)
        certified.bring(site)
    after = lab.attic.gateway.swanctl("--list-sas").splitlines()[0]

    lab.attic.gateway.kill()
    lab.attic.gateway.start()
    until(lab.is_direct, 90, f"not built by the new certificates; {lab.log_tails}")

    assert before == after
    assert lab.cellar.machine.pings(lab.attic.address)


def test_a_revoked_gateway_is_rejected_and_its_next_certificate_accepted(certified: CertificateLab) -> None:
    """With the revocation list, its peer rejects the old certificate, with the reason in the log."""
    lab = certified.lab
    certified.authority.revoke(ATTIC)
    with capture(lab.internet, "attic") as wire:
        # The compromised gateway keeps its certificate and does not load the list.
        certified.authority.issue(ATTIC)
        certified.bring(lab.cellar)
        lab.attic.gateway.kill()
        lab.attic.gateway.start()
        until(lambda: "certificate was revoked" in lab.cellar.gateway.log, 60, f"no reason; {lab.log_tails}")
        was_kept_out = not certified.is_established() and not lab.is_direct()
    certified.bring(lab.attic)
    until(lab.is_direct, 90, f"the next certificate does not serve; {lab.log_tails}")

    assert was_kept_out
    assert not packets(wire, CLEAR)
