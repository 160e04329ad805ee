"""Changes of the VPN's keys: certificates issued and revoked, lists signed anew.

Each is made under the hold, from what the files say then, and entered in the journal before anything else is written:
a run that was killed leaves at most a certificate whose key nobody has.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from bedplate.errors import InputError
from vpn.bundle import Bundle
from vpn.certificate import certificate_text, fingerprint, issue, key_text, new_key
from vpn.desk import Desk, enter, opened_desk
from vpn.entry import Issued, Revoked
from vpn.key_store import TLS_CRYPT
from vpn.lists import current_list
from vpn.passphrase import Passphrase
from vpn.pki import Pki
from vpn.revocation import Reason
from vpn.subject import Subject, Use
from vpn.tls_crypt import client_key, digest


def add(pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Issue a first certificate to each; InputError where one has a certificate that counts."""
    with opened_desk(pki, now, passphrase) as desk:
        for subject in subjects:
            _check_new(desk, subject)
        return _issued(desk, subjects)


def renew(pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Issue a new certificate, with a new key, to each; the one before stays valid to its end.

    InputError where one has none, or its newest was revoked.
    """
    with opened_desk(pki, now, passphrase) as desk:
        for subject in subjects:
            if desk.pki.roll.current(subject.name) is None:
                raise InputError(f"{subject.name} has no certificate to renew", fix="`bedplate vpn add` issues one")
        return _issued(desk, subjects)


def issue_anew(pki: Pki, subjects: Sequence[Subject], now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Issue a certificate to each, whether they had one or not: gateways, whose names the plan decides."""
    with opened_desk(pki, now, passphrase) as desk:
        return _issued(desk, subjects)


def revoke(pki: Pki, names: Iterable[str], reason: Reason, now: datetime, passphrase: Passphrase) -> tuple[Issued, ...]:
    """Revoke every certificate of these names that counts, in a new list; return them, none where all had ended."""
    with opened_desk(pki, now, passphrase) as desk:
        wanted = set(names)
        gone = tuple(each for each in desk.pki.roll.valid(now) if each.name in wanted)
        enter(desk, [Revoked(now, each.serial, reason) for each in gone])
        return gone


def relist(pki: Pki, now: datetime, passphrase: Passphrase) -> bool:
    """Sign a new list where the one there is past the half of its life, or not the last; tell whether it was."""
    if current_list(pki, now) is not None:
        return False
    with opened_desk(pki, now, passphrase) as desk:
        enter(desk, [])
    return True


def _issued(desk: Desk, subjects: Sequence[Subject]) -> tuple[Issued, ...]:
    server_key = desk.pki.store.read(TLS_CRYPT)
    if server_key is None:
        raise InputError("the gateways' tls-crypt-v2 key is not here", fix="sign where it is kept, or put it back")
    if digest(server_key) != desk.pki.journal.begun.tls_crypt:
        raise InputError(
            "the gateways' tls-crypt-v2 key is damaged: no gateway would accept a key made from it",
            fix="restore it from where you keep a copy of keys/",
        )
    roll = desk.pki.roll
    slots = roll.slots((each.name for each in subjects if each.use is Use.CLIENT), desk.now)
    made = [
        _one(desk, subject, serial, slots.get(subject.name), server_key)
        for subject, serial in zip(subjects, roll.next_serials(), strict=False)
    ]
    entries = tuple(entry for entry, _ in made)
    enter(desk, entries)
    desk.pki.store.write({entry.name: bundle.text for entry, bundle in made})
    return entries


def _one(desk: Desk, subject: Subject, serial: int, slot: int | None, server_key: str) -> tuple[Issued, Bundle]:
    key = new_key()
    made = issue(desk.issuer, subject, key.public_key(), serial, desk.now)
    until, printed = made.not_valid_after_utc, fingerprint(key.public_key())
    entry = Issued(desk.now, serial, subject.name, subject.use, until, printed, slot)
    return entry, Bundle(certificate_text(made), key_text(key, desk.lock), _hiding(subject, server_key))


def _hiding(subject: Subject, server_key: str) -> str:
    match subject.use:
        case Use.CLIENT:
            return client_key(server_key, subject.name)
        case Use.SERVER:
            return server_key
        case Use.PEER:
            return ""


def _check_new(desk: Desk, subject: Subject) -> None:
    known = desk.pki.roll.current(subject.name)
    # A certificate whose key was never written was issued by a run that was killed: nobody holds it.
    if known is not None and known.until > desk.now and desk.pki.store.read(subject.name) is not None:
        raise InputError(
            f"{subject.name} has a certificate until {known.until:%Y-%m-%d}",
            fix="`bedplate vpn renew` issues the next; for another machine of theirs, name it: --device",
        )
