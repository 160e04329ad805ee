"""Whether what is kept for a gateway serves it: a certificate of this authority's, its own, with its key, and in force.

Judges alone; what does not serve is told, and neither mended nor shown.
"""

from collections.abc import Iterator
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import InputError
from vpn.bundle import Bundle
from vpn.certificate import common_name
from vpn.judgement import certificate_faults
from vpn.pki import Pki
from vpn.subject import Subject, Use
from vpn.tls_crypt import digest


def check_serves(whose: str, bundle: Bundle, subject: Subject, pki: Pki, now: datetime) -> None:
    """Raise InputError for a certificate that is not what this authority gave to that name: somebody put it there."""
    told = tuple(_faults(bundle, subject, pki, now))
    if told:
        raise InputError(
            f"the certificate of {whose} {'; '.join(told)}",
            where=str(pki.folder.keys),
            fix=f"take away {subject.name}.pem there, then `bedplate vpn sync` issues another",
        )


def _faults(bundle: Bundle, subject: Subject, pki: Pki, now: datetime) -> Iterator[str]:
    try:
        made = x509.load_pem_x509_certificate(bundle.certificate.encode())
    except ValueError:
        yield "cannot be read"
        return
    for fault in certificate_faults(made, subject.use, pki.authority.certificate, now):
        yield fault.message
    if made.subject != common_name(subject.name):
        yield f"names {made.subject.rfc4514_string()}"
    if load_pem_private_key(bundle.key.encode(), None).public_key() != made.public_key():
        yield "is not of the key beside it"
    if subject.use is Use.SERVER and digest(bundle.tls_crypt) != pki.journal.begun.tls_crypt:
        yield "has a damaged tls-crypt-v2 key beside it"
    yield from _by_journal(made.serial_number, pki)


def _by_journal(serial: int, pki: Pki) -> Iterator[str]:
    if serial not in pki.roll.issued:
        yield "is not one that the journal tells of"
    if serial in pki.roll.revoked:
        yield "was revoked"
