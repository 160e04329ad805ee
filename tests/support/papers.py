"""Certificates for gateways in a laboratory, made by the product's own authority, and those that must not get in."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from vpn.authority import new_authority
from vpn.certificate import Issuer, certificate_text, issue, key_text, new_key
from vpn.revocation import Reason, Revocation, list_text, signed_list
from vpn.sites.pair import Peer, Proofs
from vpn.sites.proof import Papers, Proof
from vpn.subject import Subject, Use

# So long ago that the authority was there before anything that a laboratory asks of it.
_AGE = timedelta(days=1000)


@dataclass(frozen=True)
class Office:
    """An authority that issues to gateways; `revoked` are the serials on its lists."""

    now: datetime
    issuer: Issuer = field(repr=False)
    revoked: frozenset[int] = frozenset()

    def papers(self, peer: Peer, at: timedelta = timedelta(), named: str | None = None, use: Use = Use.PEER) -> Papers:
        """Return a gateway's papers, with a certificate issued so long from now, and no list."""
        key, subject = new_key(), Subject(named or peer.identity, use)
        certificate = issue(self.issuer, subject, key.public_key(), serial_of(peer), self.now + at)
        return Papers(certificate_text(certificate), key_text(key), (certificate_text(self.issuer.certificate),), ())

    def listed(self, at: timedelta = timedelta(), number: int = 1) -> str:
        """Return the list of what is revoked, signed so long from now."""
        rows = [Revocation(serial, self.now + at, Reason.LEFT) for serial in sorted(self.revoked)]
        return list_text(signed_list(self.issuer, rows, number, self.now + at))


def open_office(now: datetime) -> Office:
    """Return an authority that has been there for long."""
    return Office(now, new_authority("lab", now - _AGE))


def with_certificate(papers: Papers, of: Papers) -> Papers:
    """Return papers with the certificate and key of others."""
    return replace(papers, certificate=of.certificate, key=of.key)


def serial_of(peer: Peer) -> int:
    """Return the serial of a gateway's certificate."""
    return sum(peer.identity.encode()) + 1


def papers_for(office: Office) -> Proofs:
    """Return the proof of gateways that all have good papers of one authority, and its list."""

    def proof(near: Peer, far: Peer) -> Proof:
        return replace(office.papers(near), revoked=(office.listed(),))

    return proof


def changed(proofs: Proofs, whose: Peer, change: Callable[[Papers], Papers]) -> Proofs:
    """Return proofs where the papers of one gateway are changed."""

    def proof(near: Peer, far: Peer) -> Proof:
        papers = proofs(near, far)
        return change(papers) if near == whose and isinstance(papers, Papers) else papers

    return proof
