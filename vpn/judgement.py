"""What is wrong with certificates and lists that somebody else made, or that have grown old: with dates and figures.

Judges; never repairs, and never shows a key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from vpn.certificate import USES, Issuer
from vpn.revocation import Freshness, end_of, freshness
from vpn.subject import Use

# The longest that browsers have taken (CA/Browser Forum ballot SC22 before 2020); a stolen key serves no longer.
LONGEST = timedelta(days=825)
_LEAST_RSA, _LEAST_CURVE = 3072, 256
_STRONG = frozenset({"sha256", "sha384", "sha512"})


class Level(StrEnum):
    """Whether a fault is a matter for today."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong, said so that it completes `<file> ...`."""

    level: Level
    message: str


def certificate_faults(
    certificate: x509.Certificate, use: Use, issuer: x509.Certificate, now: datetime
) -> tuple[Fault, ...]:
    """Return all that keeps a gateway's or a laptop's certificate from its use."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (
        *_dated(certificate, now),
        *_strong(certificate),
        *_hung_on(certificate, issuer),
        *_errors(_is_authority(certificate), "is of an authority, and is to be of a gateway or a laptop"),
        *_errors(not _serves(certificate, use), f"may not be used as a {use}"),
        *_errors(life > LONGEST, f"lasts {life.days} days; {LONGEST.days} are the most"),
    )


def authority_faults(offered: Issuer, now: datetime) -> tuple[Fault, ...]:
    """Return all that keeps a certificate and its key from signing others: those of a root that an operator brings."""
    certificate = offered.certificate
    return (
        *_dated(certificate, now),
        *_strong(certificate),
        *_errors(not _is_authority(certificate), "is not of an authority: it may sign no certificate"),
        *_errors(certificate.public_key() != offered.key.public_key(), "does not belong to the key beside it"),
    )


_AHEAD = 'for a clock was ahead when it was signed (docs/vpn-keys.md, "The clock was ahead")'


def list_faults(
    revocations: x509.CertificateRevocationList, issuer: x509.Certificate, now: datetime
) -> tuple[Fault, ...]:
    """Return all that keeps a list from being deployed; within 14 days of its end, a warning."""
    end, left = end_of(revocations), freshness(revocations, now)
    days = f"ends on {end:%Y-%m-%d}, in {max((end - now).days, 0)} days"
    return (
        *_errors(not is_signed_by(revocations, issuer), f"is of another authority than {_told(issuer)}"),
        *_errors(end <= now, f"ended on {end:%Y-%m-%d}: a gateway that reads it lets nobody in"),
        *_errors(revocations.last_update_utc > now, f"begins on {revocations.last_update_utc:%Y-%m-%d} only, {_AHEAD}"),
        *_errors(end > now and left is Freshness.FAILURE, days),
        *((Fault(Level.WARNING, days),) if left is Freshness.WARNING else ()),
    )


def _errors(wrong: bool, message: str) -> Iterator[Fault]:  # noqa: FBT001  the condition, not a switch
    if wrong:
        yield Fault(Level.ERROR, message)


def _dated(certificate: x509.Certificate, now: datetime) -> Iterator[Fault]:
    yield from _errors(certificate.not_valid_after_utc <= now, f"ended on {certificate.not_valid_after_utc:%Y-%m-%d}")
    yield from _errors(
        certificate.not_valid_before_utc > now, f"begins on {certificate.not_valid_before_utc:%Y-%m-%d} only"
    )


def _strong(certificate: x509.Certificate) -> Iterator[Fault]:
    yield from _weak_key(certificate.public_key())
    digest = certificate.signature_hash_algorithm
    if digest is not None and digest.name not in _STRONG:
        yield Fault(Level.ERROR, f"is signed with {digest.name.upper()}; SHA-256 is the least")


def _weak_key(key: CertificatePublicKeyTypes) -> Iterator[Fault]:
    match key:
        case rsa.RSAPublicKey():
            yield from _errors(
                key.key_size < _LEAST_RSA, f"has an RSA key of {key.key_size} bits; {_LEAST_RSA} are the least"
            )
        case ec.EllipticCurvePublicKey():
            yield from _errors(key.key_size < _LEAST_CURVE, f"has a key of {key.key_size} bits on {key.curve.name}")
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return
        case _:
            yield Fault(Level.ERROR, "has a key of a kind that no VPN takes")


def _hung_on(certificate: x509.Certificate, issuer: x509.Certificate) -> Iterator[Fault]:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        yield Fault(Level.ERROR, f"was not issued by {_told(issuer)}")


def is_signed_by(revocations: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    """Return whether a list is signed by the key of a certificate, under its name."""
    key = issuer.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        return False
    return revocations.issuer == issuer.subject and revocations.is_signature_valid(key)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _serves(certificate: x509.Certificate, use: Use) -> bool:
    try:
        return USES[use] in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False


def _told(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
