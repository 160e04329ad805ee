"""By what the fleet's own gateways know each other at tunnels: made, or renewed, and read where private keys lie."""

from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.output import show
from bedplate.cli.vpn_opening import keys_of, now
from bedplate.errors import BedplateError

if TYPE_CHECKING:
    from collections.abc import Collection

    from bedplate.plan import FleetPlan
    from vpn.passphrase import Passphrase
    from vpn.pki import Pki
    from vpn.sites.proof import PlaceProofs, Proof


def proofs_of(plan: "FleetPlan", fleet: Path, passphrase: "Passphrase", *, anew: bool = False) -> "PlaceProofs":
    """Return what each two gateways prove themselves by; made where there is none yet, or for all of them `anew`.

    What is returned raises BedplateError for a gateway whose own does not serve; where nobody's does, this does.
    """
    from bedplate.plan.joint import pairs
    from bedplate.spec.vpn import TunnelAuth

    if not pairs(plan):
        return _nothing
    pki = keys_of(plan.name, fleet)
    if plan.tunnel_auth is TunnelAuth.CERTIFICATES:
        _certify(plan, pki, passphrase, anew=anew)
        return _by_papers(plan, keys_of(plan.name, fleet), passphrase)
    return _by_keys(plan, pki, passphrase, anew=anew)


def _nothing(near: str, far: str) -> "Proof":
    raise KeyError(near, far)


def _by_keys(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase", *, anew: bool) -> "PlaceProofs":
    from bedplate.plan.joint import pairs
    from bedplate.report.tunnels import made_key_lines
    from vpn.pair_keys import kept_keys, make_keys
    from vpn.sites.proof import given

    wanted = pairs(plan)
    show(made_key_lines(make_keys(pki, wanted, passphrase, anew=anew)))
    keys = kept_keys(pki, wanted, passphrase)
    _check_some(keys.values())
    return lambda near, far: given(keys[frozenset((near, far))])


def _certify(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase", *, anew: bool) -> None:
    """Sign what gateways lack, and say it; `anew`, those that they have are revoked first."""
    from bedplate.report.vpn import issued_lines, revoked_lines
    from vpn.peers import due_peers, peer_subjects
    from vpn.revocation import Reason
    from vpn.signing import issue_anew, relist, revoke

    peers = tuple(peer_subjects(plan).values())
    keyless = {peer.name for peer in peers if anew or pki.store.read(peer.name) is None}
    wanted = due_peers(pki.roll, peers, keyless, now())
    gone = (*wanted.gone, *(peer.name for peer in peers if anew))
    if gone and (revoked := revoke(pki, gone, Reason.REPLACED, now(), passphrase)):
        show(revoked_lines(revoked))
    if wanted.lacking:
        show(issued_lines(issue_anew(pki, wanted.lacking, now(), passphrase), now()))
    relist(pki, now(), passphrase)


def _by_papers(plan: "FleetPlan", pki: "Pki", passphrase: "Passphrase") -> "PlaceProofs":
    from vpn.peers import papers_of, peer_subjects
    from vpn.sites.proof import given

    papers = papers_of(pki, peer_subjects(plan), passphrase, now())
    _check_some(papers.values())
    return lambda near, _: given(papers[near])


def _check_some(found: "Collection[Proof | BedplateError]") -> None:
    """Raise the first trouble where there is nothing else: a passphrase that opens nothing, a folder of no use."""
    troubles = [each for each in found if isinstance(each, BedplateError)]
    if troubles and len(troubles) == len(found):
        raise troubles[0]
