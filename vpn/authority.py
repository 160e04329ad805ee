"""The fleet's certificate authority: one key that signs for itself, or under a root whose key is kept elsewhere."""

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
from vpn.certificates import (
    HASH,
    SLACK,
    USES,
    Issuer,
    Use,
    authority_identifier,
    certificate_text,
    common_name,
    new_key,
    usage,
)

# An authority's end is the end of every profile: the root outlives two authorities, an authority forty certificates.
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
        """The text of authority.crt, in PEM: the issuing certificate, then the root."""
        return "".join(certificate_text(one) for one in (self.certificate, self.root) if one is not None)

    @property
    def trusted(self) -> str:
        """The only certificate that OpenVPN trusts, in PEM. A root would vouch for replaced authorities too."""
        return certificate_text(self.twin or self.certificate)


def new_authority(fleet: str, now: datetime) -> Issuer:
    """Return an authority that signs for itself, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE)


def new_root(fleet: str, now: datetime) -> Issuer:
    """Return a root, with a new key; it signs authorities and their revocation, nothing else."""
    return _signed(f"{fleet} VPN root", now, ROOT_LIFE, below=1)


def authority_under(root: Issuer, fleet: str, now: datetime) -> Issuer:
    """Return an authority that the root has signed, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE, root=root)


def twin_of(issuer: Issuer, fleet: str, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate of an authority that a root has signed, valid as long as that one."""
    life = issuer.certificate.not_valid_after_utc - now
    return _signed(f"{fleet} VPN authority", now, life, key=issuer.key).certificate


def _signed(  # noqa: PLR0913  all that differs between a root, an authority and its twin
    name: str,
    now: datetime,
    life: timedelta,
    *,
    below: int = 0,
    root: Issuer | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Issuer:
    """Return a certificate, signed by the root or by itself, with a new key unless one is given.

    `below` is the number of authorities that may be below it.
    """
    key = key or new_key()
    until = now + life if root is None else min(now + life, root.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(common_name(name) if root is None else root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=below), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_named_by(key, root), critical=False)
    )
    return Issuer(builder.sign(key if root is None else root.key, HASH()), key)


def _named_by(key: ec.EllipticCurvePrivateKey, root: Issuer | None) -> x509.AuthorityKeyIdentifier:
    if root is None:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return authority_identifier(root.certificate)


REVOCATION_LIFE = timedelta(days=90)
WARNING, FAILURE = timedelta(days=14), timedelta(days=3)


class Reason(StrEnum):
    """Why a certificate was revoked, as RFC 5280 section 5.3.1 names it."""

    LOST = "keyCompromise"
    LEFT = "affiliationChanged"
    REPLACED = "superseded"


@dataclass(frozen=True, slots=True)
class Revocation:
    """A certificate that no longer counts, since when and why."""

    serial: int
    at: datetime
    reason: Reason


@dataclass(frozen=True, slots=True)
class RootList:
    """The list that a root signs next to an authority: its number, and the authorities that it revokes."""

    number: int
    revoked: tuple[Revocation, ...]


class Freshness(StrEnum):
    """How near a list is to its end."""

    FRESH = "fresh"
    DUE = "due"
    WARNING = "warning"
    FAILURE = "failure"


def signed_list(
    issuer: Issuer, revoked: Iterable[Revocation], number: int, now: datetime, life: timedelta = REVOCATION_LIFE
) -> x509.CertificateRevocationList:
    """Return the list of an issuer; `number` is greater than that of each list before."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(counted_from(now))
        .next_update(min(now + life, issuer.certificate.not_valid_after_utc))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(authority_identifier(issuer.certificate), critical=False)
    )
    for each in revoked:
        builder = builder.add_revoked_certificate(_row(each))
    return builder.sign(issuer.key, HASH())


def list_text(revocations: x509.CertificateRevocationList) -> str:
    """Return a list in PEM."""
    return revocations.public_bytes(Encoding.PEM).decode()


def read_lists(text: str) -> tuple[x509.CertificateRevocationList, ...]:
    """Return the lists of a PEM text; InputError if it holds anything else, be it one byte."""
    end = "-----END X509 CRL-----\n"
    parts = [part + end for part in text.split(end)[:-1]]
    try:
        lists = tuple(x509.load_pem_x509_crl(part.encode()) for part in parts)
    except ValueError:
        lists = ()
    if not lists or "".join(map(list_text, lists)) != text:
        raise InputError("not a revocation list in PEM", fix="`bedplate vpn sync` signs a new one")
    return lists


def freshness(revocations: x509.CertificateRevocationList, now: datetime) -> Freshness:
    """Tell how near a list is to its end: due for renewal from the half of its life on."""
    left = end_of(revocations) - now
    if left <= FAILURE:
        return Freshness.FAILURE
    if left <= WARNING:
        return Freshness.WARNING
    late = is_due(revocations.last_update_utc, end_of(revocations), now)
    return Freshness.DUE if late else Freshness.FRESH


def is_due(start: datetime, end: datetime, now: datetime) -> bool:
    """Tell whether a list of that life is to be followed by the next: from the half of it on."""
    return end - now <= (end - start) / 2


def counted_from(signed: datetime) -> datetime:
    """Return as of when a list counts that was signed at a moment: a little before, for clocks that are behind."""
    return signed - SLACK


def end_of(revocations: x509.CertificateRevocationList) -> datetime:
    """Return when a list ends; one that names no end has ended."""
    return revocations.next_update_utc or revocations.last_update_utc


def number_of(revocations: x509.CertificateRevocationList) -> int:
    """Return the number of a list."""
    return revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def _row(revocation: Revocation) -> x509.RevokedCertificate:
    return (
        x509.RevokedCertificateBuilder()
        .serial_number(revocation.serial)
        .revocation_date(revocation.at)
        .add_extension(x509.CRLReason(x509.ReasonFlags(revocation.reason.value)), critical=False)
        .build()
    )


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
