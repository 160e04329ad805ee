"""Revocation lists: which certificates no longer count, signed and dated. Who carries them is no matter of this module.

A list has an end, and a daemon that reads one past its end lets nobody in: hence the early renewal and the two limits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bedplate.errors import InputError
from vpn.certificate import HASH, SLACK, Issuer, authority_identifier

LIFE = timedelta(days=90)
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
    issuer: Issuer, revoked: Iterable[Revocation], number: int, now: datetime, life: timedelta = LIFE
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
