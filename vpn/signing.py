"""Issue and revoke certificates, and sign revocation lists.

Each change runs under the lock of the folder, with its present content. The audit log is written first: a run that was
killed leaves at most a certificate without a private key.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import IPv4Network

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import InputError, MachineError
from bedplate.files import held
from bedplate.spec.network import laptop_capacity
from vpn.audit_log import CertificateIndex, Entry, Issued, Listed, Revoked, TlsCryptKey, index_of
from vpn.authority import Reason, certificate_findings, crl_end, crl_text, sign_crl
from vpn.certificates import (
    LIFE,
    Bundle,
    Issuer,
    Passphrase,
    Subject,
    Use,
    certificate_text,
    client_key,
    common_name,
    device_words,
    digest,
    fingerprint,
    issue,
    key_text,
    new_key,
    new_server_key,
    parse_bundle,
    user_of,
)
from vpn.pki import TLS_CRYPT, Pki, current_crl, open_issuer, reload_pki, root_crl_texts


@dataclass(frozen=True, slots=True)
class SigningSession:
    """One change of the keys: the content of the locked folder, the authority's key and its passphrase."""

    pki: Pki
    issuer: Issuer
    passphrase: bytes | None
    now: datetime


@contextmanager
def signing_session(pki: Pki, now: datetime, passphrase: Passphrase) -> Iterator[SigningSession]:
    """Lock the folder, read it again and open the authority's key; raise HeldError while another process signs.

    The root's list is checked too: nothing is signed if it could not be sent.
    """
    with held(pki.folder.journal):
        fresh = reload_pki(pki)
        _check_clock(fresh.certificates, now)
        root_crl_texts(fresh, now)
        issuer, password = open_issuer(fresh, passphrase)
        yield SigningSession(fresh, issuer, password, now.replace(microsecond=0))


def write_entries(session: SigningSession, entries: Sequence[Entry]) -> None:
    """Add entries to the audit log, with a new revocation list if one is revoked or the present list is due."""
    folder, log = session.pki.folder, session.pki.journal.with_entries(entries)
    files = {}
    if any(isinstance(entry, Revoked) for entry in entries) or current_crl(session.pki, session.now) is None:
        index = index_of(log)
        number = index.listed.number + 1 if index.listed else 1
        crl = sign_crl(session.issuer, index.revocations(), number, session.now)
        log = log.with_entries((Listed(session.now, number, crl_end(crl)),))
        files = {folder.lists: crl_text(crl)}
    text = log.text(session.issuer.key)
    folder.write({folder.journal: text, folder.copy: text, **files})


def _check_clock(index: CertificateIndex, now: datetime) -> None:
    """Raise MachineError if the clock is behind the newest entry of the audit log."""
    if now < index.newest:
        raise MachineError(
            f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC, but the newest entry of the audit log is of"
            f" {index.newest:%Y-%m-%d %H:%M}",
            fix="set the clock, or, if it was ahead when that entry was signed, see docs/vpn-keys.md,"
            ' "The clock was ahead"',
        )


def add(pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Issue a first certificate to each subject; raise InputError if one has a valid certificate."""
    with signing_session(pki, now, passphrase) as session:
        for subject in subjects:
            _check_new(session, subject)
        return _issue(session, subjects)


def renew(pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Issue a new certificate with a new key to each subject; the former one stays valid until it expires.

    Raise InputError if a subject has no certificate, or its newest one was revoked.
    """
    with signing_session(pki, now, passphrase) as session:
        for subject in subjects:
            if session.pki.certificates.current(subject.name) is None:
                raise InputError(
                    f"{subject.name} has no certificate to renew",
                    fix=f"run `bedplate vpn add {device_words(subject.name)}`",
                )
        return _issue(session, subjects)


def issue_certificates(
    pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase
) -> tuple[Issued, ...]:
    """Issue a certificate to each subject without a check of the former one: for gateways."""
    with signing_session(pki, now, passphrase) as session:
        return _issue(session, subjects)


def revoke(pki: Pki, names: Iterable[str], reason: Reason, now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Revoke all valid certificates of these names with a new revocation list, and return them."""
    with signing_session(pki, now, passphrase) as session:
        revoked = session.pki.certificates.valid_of(names, now)
        write_entries(session, [Revoked(now, certificate.serial, reason) for certificate in revoked])
        return revoked


def replace_gateway(pki: Pki, gateway: Subject, now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Revoke a gateway's certificates, issue the next one, and return the revoked ones.

    The key tls-crypt-v2 is replaced too, in all stored certificates: each laptop needs its new profile.
    """
    with signing_session(pki, now, passphrase) as session:
        index, server_key = session.pki.certificates, new_server_key()
        revoked = index.valid_of([gateway.name], now)
        serial = next(index.next_serials())
        issued, bundle = _issue_one(session, gateway, serial, None, server_key)
        revocations = [Revoked(now, certificate.serial, Reason.LOST) for certificate in revoked]
        texts = {**_rewrapped(session.pki, server_key), gateway.name: bundle.text, TLS_CRYPT: server_key}
        write_entries(session, [*revocations, issued, TlsCryptKey(session.now, digest(server_key))])
        session.pki.store.write(texts)
        return revoked


def _rewrapped(pki: Pki, server_key: str) -> dict[str, str]:
    """Return the stored certificates of laptops and gateways with tls-crypt-v2 keys of a new server key."""
    texts = {}
    for certificate in pki.certificates.holders().values():
        text = pki.store.read(certificate.name)
        if text is not None and certificate.use is not Use.PEER:
            tls_crypt = _tls_crypt_key(Subject(certificate.name, certificate.use), server_key)
            # A damaged file stays: the next command that needs it reports it.
            with suppress(InputError):
                texts[certificate.name] = replace(parse_bundle(text), tls_crypt=tls_crypt).text
    return texts


def renew_crl(pki: Pki, now: datetime, passphrase: Passphrase) -> bool:
    """Sign a new revocation list if the present one is due or not the newest, and return whether it was signed."""
    if current_crl(pki, now) is not None:
        return False
    with signing_session(pki, now, passphrase) as session:
        write_entries(session, [])
    return True


def _issue(session: SigningSession, subjects: Sequence[Subject]) -> tuple[Issued, ...]:
    pki = session.pki
    server_key = pki.store.read(TLS_CRYPT)
    if server_key is None:
        raise InputError(
            "the gateways' tls-crypt-v2 key is missing", fix="sign on the machine that has it, or restore it"
        )
    if digest(server_key) != pki.journal.tls_crypt:
        raise InputError(
            "the gateways' tls-crypt-v2 key is damaged: gateways would reject keys made from it",
            fix="restore it from your backup of keys/, or replace it with `bedplate vpn revoke --gateway PLACE`",
        )
    slots = pki.certificates.slots((subject.name for subject in subjects if subject.use is Use.CLIENT), session.now)
    issued = [
        _issue_one(session, subject, serial, slots.get(subject.name), server_key)
        for subject, serial in zip(subjects, pki.certificates.next_serials(), strict=False)
    ]
    entries = tuple(entry for entry, _ in issued)
    write_entries(session, entries)
    pki.store.write({entry.name: bundle.text for entry, bundle in issued})
    return entries


def _issue_one(
    session: SigningSession, subject: Subject, serial: int, slot: int | None, server_key: str
) -> tuple[Issued, Bundle]:
    key = new_key()
    certificate = issue(session.issuer, subject, key.public_key(), serial, session.now)
    entry = Issued(
        at=session.now,
        serial=serial,
        name=subject.name,
        use=subject.use,
        until=certificate.not_valid_after_utc,
        key=fingerprint(key.public_key()),
        slot=slot,
    )
    tls_crypt = _tls_crypt_key(subject, server_key)
    return entry, Bundle(certificate_text(certificate), key_text(key, session.passphrase), tls_crypt)


def _tls_crypt_key(subject: Subject, server_key: str) -> str:
    match subject.use:
        case Use.CLIENT:
            return client_key(server_key, subject.name)
        case Use.SERVER:
            return server_key
        case Use.PEER:
            return ""


def _check_new(session: SigningSession, subject: Subject) -> None:
    current = session.pki.certificates.current(subject.name)
    # A certificate without a stored key was issued by a run that was killed: it cannot be used.
    if current is not None and current.until > session.now and session.pki.store.read(subject.name) is not None:
        raise InputError(
            f"{subject.name} has a certificate until {current.until:%Y-%m-%d}",
            fix=f"run `bedplate vpn renew {device_words(subject.name)}`, or name another device by --device",
        )


@dataclass(frozen=True, slots=True)
class SigningChanges:
    """Changes that must be signed: laptops of removed people to revoke, gateways to revoke, certificates to issue."""

    departed_laptops: tuple[str, ...]
    unused_gateways: tuple[str, ...]
    """Gateways that were removed, or whose private key is missing."""
    missing_certificates: tuple[Subject, ...]
    """Gateways without a certificate or private key, or after half of the certificate's life."""


def due(
    index: CertificateIndex, people: Container[str], gateways: Iterable[Subject], keyless: Container[str], now: datetime
) -> SigningChanges:
    """Return what must be signed for these people and gateways; `keyless` are names without a stored private key."""
    expected_gateways = {gateway.name: gateway for gateway in gateways}
    valid = {certificate.name: certificate for certificate in index.valid(now)}
    laptops = (certificate.name for certificate in valid.values() if certificate.use is Use.CLIENT)
    others = (certificate.name for certificate in valid.values() if certificate.use is not Use.CLIENT)
    return SigningChanges(
        departed_laptops=tuple(sorted(name for name in laptops if user_of(name) not in people)),
        unused_gateways=tuple(sorted(name for name in others if name not in expected_gateways or name in keyless)),
        missing_certificates=tuple(
            subject for name, subject in expected_gateways.items() if name in keyless or _is_due(valid.get(name), now)
        ),
    )


def _is_due(certificate: Issued | None, now: datetime) -> bool:
    """Return whether less than half of a life is left, or more than a whole one: that of a former version."""
    return certificate is None or not LIFE[certificate.use] / 2 <= certificate.until - now <= LIFE[certificate.use]


POOL_FIX = 'revoke laptops that are not used, or choose a wider pool (docs/vpn.md, "When a pool is full")'


def check_free_slot(index: CertificateIndex, name: str, pools: Collection[IPv4Network], now: datetime) -> None:
    """Raise InputError if no pool has a free address for a laptop; without pools nothing is checked."""
    if not pools:
        return
    widest = max(pools, key=laptop_capacity)
    if index.slots([name], now)[name] >= laptop_capacity(widest):
        what = f"no free address for {name}: the widest pool ({widest}) has only {laptop_capacity(widest)}"
        raise InputError(what, where="vpn.laptops.pool", fix=POOL_FIX)


def check_bundle(owner: str, bundle: Bundle, subject: Subject, pki: Pki, now: datetime) -> None:
    """Raise InputError unless a stored certificate is valid, and issued to this subject by this authority."""
    try:
        problems = tuple(_bundle_problems(bundle, subject, pki, now))
    except (ValueError, UnsupportedAlgorithm):
        problems = ("cannot be read",)
    if problems:
        raise InputError(
            f"the certificate of {owner} {'; '.join(problems)}",
            where=str(pki.folder.keys),
            fix="`bedplate vpn renew` issues a new one"
            if subject.use is Use.CLIENT
            else f"delete {subject.name}.pem in this folder, then `bedplate vpn sync` issues a new one",
        )


def _bundle_problems(bundle: Bundle, subject: Subject, pki: Pki, now: datetime) -> Iterator[str]:
    certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())
    for finding in certificate_findings(certificate, subject.use, pki.authority.certificate, now):
        yield finding.message
    if certificate.subject != common_name(subject.name):
        yield f"is issued to {certificate.subject.rfc4514_string()}"
    if load_pem_private_key(bundle.key.encode(), None).public_key() != certificate.public_key():
        yield "does not match the private key"
    if subject.use is Use.SERVER and digest(bundle.tls_crypt) != pki.journal.tls_crypt:
        yield "has a damaged tls-crypt-v2 key in its file"
    if certificate.serial_number not in pki.certificates.issued:
        yield "is not in the audit log"
    if certificate.serial_number in pki.certificates.revoked:
        yield "was revoked"
