"""The fleet's certificate authority, its revocation lists, and checks of certificates and lists.

The authority signs itself, or is signed by a root whose key is kept elsewhere.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding

from bedplate.errors import InputError
from bedplate.rules import Level
from vpn.certificates import (
    CLOCK_TOLERANCE,
    EXTENDED_KEY_USAGES,
    HASH,
    Issuer,
    Use,
    authority_identifier,
    certificate_text,
    common_name,
    key_usage,
    new_key,
)

# All profiles end with the authority. A root outlives two authorities, an authority forty certificates.
ROOT_LIFE, LIFE = timedelta(days=20 * 365), timedelta(days=10 * 365)


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate that issues all others; under a root also the root, and a self-signed twin of `certificate`.

    The twin has the same key, name and key identifier.
    """

    certificate: x509.Certificate
    root: x509.Certificate | None = None
    twin: x509.Certificate | None = None

    @property
    def chain(self) -> str:
        """The text of authority.crt in PEM: the issuing certificate, then the root."""
        return certificate_text(self.certificate) + (certificate_text(self.root) if self.root else "")

    @property
    def trusted(self) -> str:
        """The only certificate that OpenVPN trusts, in PEM. A trusted root would include replaced authorities."""
        return certificate_text(self.twin or self.certificate)


def new_authority(fleet: str, now: datetime, purpose: str = "VPN") -> Issuer:
    """Return a self-signed authority with a new key."""
    return _sign_authority(f"{fleet} {purpose} authority", now, LIFE)


def new_root(fleet: str, now: datetime) -> Issuer:
    """Return a root with a new key; it signs only authorities and their revocation."""
    return _sign_authority(f"{fleet} VPN root", now, ROOT_LIFE, path_length=1)


def authority_under(root: Issuer, fleet: str, now: datetime) -> Issuer:
    """Return an authority with a new key, signed by the root."""
    return _sign_authority(f"{fleet} VPN authority", now, LIFE, root=root)


def self_signed_twin(issuer: Issuer, fleet: str, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate of an authority under a root, with the same end date."""
    life = issuer.certificate.not_valid_after_utc - now
    return _sign_authority(f"{fleet} VPN authority", now, life, key=issuer.key).certificate


def _sign_authority(  # noqa: PLR0913  all that differs between a root, an authority and its twin
    name: str,
    now: datetime,
    life: timedelta,
    *,
    path_length: int = 0,
    root: Issuer | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Issuer:
    """Return a certificate of an authority, signed by the root or by itself, with a new key unless one is given."""
    key = key or new_key()
    end = now + life if root is None else min(now + life, root.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(common_name(name) if root is None else root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_issuer_identifier(key, root), critical=False)
    )
    return Issuer(builder.sign(key if root is None else root.key, HASH()), key)


def _issuer_identifier(key: ec.EllipticCurvePrivateKey, root: Issuer | None) -> x509.AuthorityKeyIdentifier:
    if root is None:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return authority_identifier(root.certificate)


REVOCATION_LIFE = timedelta(days=90)
WARNING, FAILURE = timedelta(days=14), timedelta(days=3)


class Reason(StrEnum):
    """Why a certificate was revoked, by the names of RFC 5280 section 5.3.1."""

    LOST = "keyCompromise"
    LEFT = "affiliationChanged"
    REPLACED = "superseded"


@dataclass(frozen=True, slots=True)
class Revocation:
    """A revoked certificate, with time and reason."""

    serial: int
    at: datetime
    reason: Reason


@dataclass(frozen=True, slots=True)
class RootCrl:
    """The revocation list that a root signs together with an authority: its number, and the revoked authorities."""

    number: int
    revoked: tuple[Revocation, ...]


class Freshness(StrEnum):
    """How close a revocation list is to its end."""

    FRESH = "fresh"
    DUE = "due"
    WARNING = "warning"
    FAILURE = "failure"


def sign_crl(
    issuer: Issuer, revoked: Iterable[Revocation], number: int, now: datetime, life: timedelta = REVOCATION_LIFE
) -> x509.CertificateRevocationList:
    """Return the revocation list of an issuer; `number` must be greater than that of each list before."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(valid_from(now))
        .next_update(min(now + life, issuer.certificate.not_valid_after_utc))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(authority_identifier(issuer.certificate), critical=False)
    )
    for revocation in revoked:
        builder = builder.add_revoked_certificate(_crl_entry(revocation))
    return builder.sign(issuer.key, HASH())


def _crl_entry(revocation: Revocation) -> x509.RevokedCertificate:
    return (
        x509.RevokedCertificateBuilder()
        .serial_number(revocation.serial)
        .revocation_date(revocation.at)
        .add_extension(x509.CRLReason(x509.ReasonFlags(revocation.reason.value)), critical=False)
        .build()
    )


def crl_text(crl: x509.CertificateRevocationList) -> str:
    """Return a revocation list in PEM."""
    return crl.public_bytes(Encoding.PEM).decode()


def parse_crls(text: str) -> tuple[x509.CertificateRevocationList, ...]:
    """Return the revocation lists of a PEM text; raise InputError if it contains anything else."""
    end = "-----END X509 CRL-----\n"
    parts = [part + end for part in text.split(end)[:-1]]
    try:
        crls = tuple(x509.load_pem_x509_crl(part.encode()) for part in parts)
    except ValueError:
        crls = ()
    if not crls or "".join(map(crl_text, crls)) != text:
        raise InputError("not a revocation list in PEM", fix="`bedplate vpn sync` signs a new one")
    return crls


def freshness(crl: x509.CertificateRevocationList, now: datetime) -> Freshness:
    """Return how close a revocation list is to its end; it is due for renewal after half of its life."""
    left = crl_end(crl) - now
    if left <= FAILURE:
        return Freshness.FAILURE
    if left <= WARNING:
        return Freshness.WARNING
    return Freshness.DUE if is_due(crl.last_update_utc, crl_end(crl), now) else Freshness.FRESH


def is_due(start: datetime, end: datetime, now: datetime) -> bool:
    """Return whether half of the time from start to end is over."""
    return end - now <= (end - start) / 2


def valid_from(signed: datetime) -> datetime:
    """Return the start of a list that is signed at this moment: a little earlier, for clocks that are behind."""
    return signed - CLOCK_TOLERANCE


def crl_end(crl: x509.CertificateRevocationList) -> datetime:
    """Return the end of a revocation list; a list without an end date has ended."""
    return crl.next_update_utc or crl.last_update_utc


def crl_number(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a revocation list."""
    return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


# The longest life that browsers accepted (CA/Browser Forum ballot SC22): it limits the use of a stolen key.
LONGEST = timedelta(days=825)
_MIN_RSA_BITS, _MIN_CURVE_BITS = 3072, 256
_STRONG_HASHES = frozenset({"sha256", "sha384", "sha512"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a certificate, list or gateway. The message of a certificate or list continues its file name."""

    level: Level
    message: str


def certificate_findings(
    certificate: x509.Certificate, use: Use, issuer: x509.Certificate, now: datetime
) -> tuple[Finding, ...]:
    """Return why a certificate cannot be used by a gateway or laptop."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (
        *_check_dates(certificate, now),
        *_check_strength(certificate),
        *_check_issuer(certificate, issuer),
        *_error_if(_is_authority(certificate), "is a CA certificate, not one of a gateway or laptop"),
        *_error_if(not _has_use(certificate, use), f"does not allow the use {use}"),
        *_error_if(life > LONGEST, f"is valid for {life.days} days, at most {LONGEST.days} are allowed"),
    )


def root_findings(root: Issuer, now: datetime) -> tuple[Finding, ...]:
    """Return why a root, given by the operator, cannot sign an authority."""
    certificate = root.certificate
    return (
        *_check_dates(certificate, now),
        *_check_strength(certificate),
        *_error_if(not _is_authority(certificate), "is not a CA certificate"),
        *_error_if(certificate.public_key() != root.key.public_key(), "does not match the private key"),
    )


_CLOCK_AHEAD = 'the clock was ahead when it was signed (docs/vpn-keys.md, "The clock was ahead")'


def crl_findings(crl: x509.CertificateRevocationList, issuer: x509.Certificate, now: datetime) -> tuple[Finding, ...]:
    """Return why a revocation list cannot be deployed, and a warning within 14 days of its end."""
    begin, end, state = crl.last_update_utc, crl_end(crl), freshness(crl, now)
    expiry = f"expires on {end:%Y-%m-%d}, in {max((end - now).days, 0)} days"
    return (
        *_error_if(not is_signed_by(crl, issuer), f"is not signed by {_subject_text(issuer)}"),
        *_error_if(end <= now, f"expired on {end:%Y-%m-%d}: gateways that load it reject all laptops"),
        *_error_if(begin > now, f"is not valid before {begin:%Y-%m-%d}: {_CLOCK_AHEAD}"),
        *_error_if(end > now and state is Freshness.FAILURE, expiry),
        *((Finding(Level.WARNING, expiry),) if state is Freshness.WARNING else ()),
    )


def _error_if(is_wrong: bool, message: str) -> Iterator[Finding]:  # noqa: FBT001  the condition, not a switch
    if is_wrong:
        yield Finding(Level.ERROR, message)


def _check_dates(certificate: x509.Certificate, now: datetime) -> Iterator[Finding]:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    yield from _error_if(end <= now, f"expired on {end:%Y-%m-%d}")
    yield from _error_if(begin > now, f"is not valid before {begin:%Y-%m-%d}")


def _check_strength(certificate: x509.Certificate) -> Iterator[Finding]:
    yield from _check_key(certificate.public_key())
    digest = certificate.signature_hash_algorithm
    if digest is not None and digest.name not in _STRONG_HASHES:
        yield Finding(Level.ERROR, f"is signed with {digest.name.upper()}, at least SHA-256 is required")


def _check_key(key: CertificatePublicKeyTypes) -> Iterator[Finding]:
    match key:
        case rsa.RSAPublicKey():
            size = f"has an RSA key of {key.key_size} bits, at least {_MIN_RSA_BITS} are required"
            yield from _error_if(key.key_size < _MIN_RSA_BITS, size)
        case ec.EllipticCurvePublicKey():
            size = f"has a key of {key.key_size} bits on {key.curve.name}, at least {_MIN_CURVE_BITS} are required"
            yield from _error_if(key.key_size < _MIN_CURVE_BITS, size)
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return
        case _:
            yield Finding(Level.ERROR, "has a key of an unsupported type")


def _check_issuer(certificate: x509.Certificate, issuer: x509.Certificate) -> Iterator[Finding]:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        yield Finding(Level.ERROR, f"was not issued by {_subject_text(issuer)}")


def is_signed_by(crl: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    """Return whether a revocation list has the name and signature of this certificate."""
    key = issuer.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        return False
    return crl.issuer == issuer.subject and crl.is_signature_valid(key)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _has_use(certificate: x509.Certificate, use: Use) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return EXTENDED_KEY_USAGES[use] in usages


def _subject_text(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
