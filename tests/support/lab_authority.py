"""A fleet's authority in a laboratory of gateways that know each other by certificates: the product's own, of today."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bedplate.plan import FleetPlan
from tests.support.authority import begun_in, pki_in, unasked
from vpn.peers import papers_of, peer_subjects
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason
from vpn.signing import issue_anew, revoke
from vpn.sites.proof import PlaceProofs, given


@dataclass(frozen=True)
class LabAuthority:
    """The authority, and the fleet whose gateways hang on it."""

    folder: PkiFolder
    plan: FleetPlan

    def issue(self, *places: str) -> None:
        """Issue gateways a certificate, whatever they have."""
        issue_anew(pki_in(self.folder), tuple(peer_subjects(self.plan)[each] for each in places), _now(), unasked)

    def revoke(self, place: str) -> None:
        """Revoke what a gateway has."""
        revoke(pki_in(self.folder), (peer_subjects(self.plan)[place].name,), Reason.LOST, _now(), unasked)

    @property
    def proofs(self) -> PlaceProofs:
        """What gateways prove themselves by now."""
        papers = papers_of(pki_in(self.folder), peer_subjects(self.plan), unasked, _now())
        return lambda near, _: given(papers[near])


def begun_for(plan: FleetPlan, folder: Path) -> LabAuthority:
    """Begin the authority of a fleet, and issue what its gateways need."""
    made = LabAuthority(begun_in(folder, _now()), plan)
    made.issue(*peer_subjects(plan))
    return made


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
