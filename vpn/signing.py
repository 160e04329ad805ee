"""Changes of the VPN's keys: certificates issued and revoked, lists signed anew.

Each is made under the hold, from what the files say then, and entered in the journal before anything else is written:
a run that was killed leaves at most a certificate whose key nobody has.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import InputError, MachineError
from bedplate.hold import held
from bedplate.spec.address import room
from vpn.authority import Reason, certificate_faults, end_of, list_text, signed_list
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
    digest,
    fingerprint,
    issue,
    key_text,
    new_key,
    user_of,
)
from vpn.journal import Entry, Issued, Listed, Revoked, Roll, roll_of
from vpn.pki import TLS_CRYPT, Pki, current_list, opened_issuer, reopened, root_texts


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one change is made: what the folder holds under the hold, and the authority's key."""

    pki: Pki
    issuer: Issuer
    lock: bytes | None
    now: datetime


@contextmanager
def opened_desk(pki: Pki, now: datetime, passphrase: Passphrase) -> Iterator[Desk]:
    """Open the folder again under the lock, with the authority's key; HeldError while another process signs.

    The root's list is checked here: nothing is signed next to one that could not be sent.
    """
    with held(pki.folder.journal):
        fresh = reopened(pki)
        check_clock(fresh.roll, now)
        root_texts(fresh, now)
        issuer, lock = opened_issuer(fresh, passphrase)
        yield Desk(fresh, issuer, lock, now.replace(microsecond=0))


def enter(desk: Desk, entries: Sequence[Entry]) -> None:
    """Write the journal with more entries, and a new list where the one there does not tell of them or is due."""
    folder, journal = desk.pki.folder, desk.pki.journal.with_entries(entries)
    lists = {}
    is_revoking = any(isinstance(entry, Revoked) for entry in entries)
    if is_revoking or current_list(desk.pki, desk.now) is None:
        roll = roll_of(journal)
        number = roll.listed.number + 1 if roll.listed else 1
        made = signed_list(desk.issuer, roll.revocations(), number, desk.now)
        journal = journal.with_entries((Listed(desk.now, number, end_of(made)),))
        lists = {folder.lists: list_text(made)}
    sealed = journal.text(desk.issuer.key)
    folder.write({folder.journal: sealed, folder.copy: sealed, **lists})


def check_clock(roll: Roll, now: datetime) -> None:
    """Raise MachineError where the clock is behind what was signed already."""
    if now < roll.newest:
        raise MachineError(
            f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC, and the journal's last entry is of"
            f" {roll.newest:%Y-%m-%d %H:%M}",
            fix="set the clock: what is signed now would begin before what was signed last; if it was ahead when that"
            ' was signed, docs/vpn-keys.md, "The clock was ahead"',
        )


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


@dataclass(frozen=True, slots=True)
class Due:
    """What has to be done, by name: laptops of people who left, gateways that are gone, certificates to issue."""

    left: tuple[str, ...]
    gone: tuple[str, ...]
    lacking: tuple[Subject, ...]
    """Gateways without a certificate or its key, or with a certificate past the half of its life."""


def due(roll: Roll, people: Container[str], gateways: Iterable[Subject], keyless: Container[str], now: datetime) -> Due:
    """Return what has to be done for these people and gateways; `keyless` are names of which no key is kept."""
    wanted = {gateway.name: gateway for gateway in gateways}
    valid = {each.name: each for each in roll.valid(now)}
    laptops = (each for each in valid.values() if each.use is Use.CLIENT)
    others = (each for each in valid.values() if each.use is not Use.CLIENT)
    return Due(
        left=tuple(sorted(each.name for each in laptops if user_of(each.name) not in people)),
        gone=tuple(sorted(each.name for each in others if each.name not in wanted)),
        lacking=tuple(subject for name, subject in wanted.items() if name in keyless or _lacks(valid.get(name), now)),
    )


def _lacks(certificate: Issued | None, now: datetime) -> bool:
    return certificate is None or certificate.until - now < LIFE / 2


WIDER = 'revoke what is not used, or give the gateways a wider pool (docs/vpn.md, "When a pool is full")'


def check_room(roll: Roll, name: str, pools: Collection[IPv4Network], now: datetime) -> None:
    """Raise InputError where none of the pools has room for a laptop of that name; of no pools nothing is known."""
    if not pools:
        return
    widest = max(pools, key=room)
    if roll.slots([name], now)[name] >= room(widest):
        told = f"no gateway's pool has room for {name}: the widest, {widest}, is for {room(widest)}"
        raise InputError(told, where="vpn.laptops.pool", fix=WIDER)


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
