"""The audit log of the VPN's keys, and the index of certificates that follows from it.

The log (the file `journal`) holds all issued and revoked certificates. Each line contains a hash over all lines before
it, and the last line is a signature of the authority. A log that was cut or edited is rejected.
"""

import base64
import binascii
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import AwareDatetime, Field, PlainSerializer, PlainValidator, TypeAdapter

from bedplate.foreign import parse_as
from vpn.authority import Reason, Revocation, is_due, valid_from
from vpn.certificates import HASH, Use

_MAX_SERIAL = 2**159 - 1  # RFC 5280 section 4.1.2.2: positive, at most 20 octets


class NotAnEntryError(ValueError):
    """A line that is not a valid entry."""


def _moment_text(moment: datetime) -> str:
    """Return a moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_serial(text: str) -> int:
    serial = int(text, 16)
    if not 0 < serial <= _MAX_SERIAL:
        raise ValueError("invalid serial number")
    return serial


_Moment = Annotated[AwareDatetime, PlainSerializer(_moment_text)]
# Hexadecimal in the log. From Python 3.13 on, pydantic refuses the signature of `str.format`.
_Serial = Annotated[int, PlainValidator(_parse_serial), PlainSerializer(lambda serial: f"{serial:x}")]


@dataclass(frozen=True, slots=True)
class Begun:
    """The authority that signs all later entries, and the kind of its key store.

    `authority` and `root` are the SHA-256 of the certificates in authority.crt; `root` is empty without a root.
    `tls_crypt` is the SHA-256 of the gateways' first tls-crypt-v2 key. `root_list` is the number and the SHA-256 of the
    root's revocation list, which is signed together with the authority; older logs lack it.
    """

    at: _Moment
    fleet: Annotated[str, Field(alias="begun")]
    authority: str
    keys: str
    root: str
    tls_crypt: str
    root_list: str | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate; `key` is the SHA-256 of its public key, `slot` the number that determines a laptop's address."""

    at: _Moment
    serial: _Serial
    name: Annotated[str, Field(alias="issued")]
    use: Use
    until: _Moment
    key: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Revoked:
    """A revoked certificate."""

    at: _Moment
    serial: Annotated[_Serial, Field(alias="revoked")]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Listed:
    """A signed revocation list."""

    at: _Moment
    number: Annotated[int, Field(alias="listed")]
    until: _Moment


@dataclass(frozen=True, slots=True)
class TlsCryptKey:
    """A new tls-crypt-v2 key of the gateways, by its SHA-256."""

    at: _Moment
    digest: Annotated[str, Field(alias="tls_crypt_key")]


Entry = Begun | Issued | Revoked | Listed | TlsCryptKey
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


def entry_text(entry: Entry) -> str:
    """Return an entry as one line."""
    return _ENTRY.dump_json(entry, by_alias=True, exclude_none=True).decode()


def parse_entry(text: str) -> Entry:
    """Return the entry of a line; raise NotAnEntryError if it is invalid."""
    try:
        return parse_as(_ENTRY, text)
    except (ValueError, TypeError):
        raise NotAnEntryError("not a valid entry") from None


_SEAL = "seal"
_FIRST_HASH = "0" * 64


class DamagedError(ValueError):
    """A text that is not a complete audit log of this authority; the message names the line."""


@dataclass(frozen=True, slots=True)
class AuditLog:
    """All entries in their order; the first is the authority. `head` is the hash of the last line.

    `sealed` is the text that the log was read from, empty before it is written.
    """

    entries: tuple[Entry, ...]
    lines: tuple[str, ...]
    head: str
    sealed: str = ""

    @property
    def begun(self) -> Begun:
        """The first entry."""
        first = self.entries[0]
        assert isinstance(first, Begun)  # noqa: S101  # new_audit_log and parse_audit_log ensure it
        return first

    @property
    def tls_crypt(self) -> str:
        """The SHA-256 of the gateways' present tls-crypt-v2 key."""
        replaced = [entry.digest for entry in self.entries if isinstance(entry, TlsCryptKey)]
        return replaced[-1] if replaced else self.begun.tls_crypt

    def with_entries(self, entries: Sequence[Entry]) -> "AuditLog":
        """Return the log with more entries at its end."""
        head, lines = self.head, list(self.lines)
        for entry in entries:
            text = entry_text(entry)
            head = _line_hash(head, text)
            lines.append(f"{head} {text}")
        return AuditLog((*self.entries, *entries), tuple(lines), head)

    def text(self, key: ec.EllipticCurvePrivateKey) -> str:
        """Return the text of the file, signed with the authority's key."""
        signature = base64.b64encode(key.sign(self.head.encode(), ec.ECDSA(HASH()))).decode()
        return "\n".join((*self.lines, f"{_SEAL} {len(self.lines)} {signature}", ""))


def new_audit_log(begun: Begun) -> AuditLog:
    """Return a log with its first entry only."""
    return AuditLog((), (), _FIRST_HASH).with_entries((begun,))


def parse_audit_log(text: str, key: ec.EllipticCurvePublicKey) -> AuditLog:
    """Return the log of a text; raise DamagedError unless it is complete and signed with this key."""
    if not text.endswith("\n"):
        raise DamagedError("the last line is incomplete")
    *lines, seal = text.removesuffix("\n").split("\n")
    log = _parse_lines(lines)
    _check_seal(seal, log, key)
    return replace(log, sealed=text)


def _line_hash(head: str, text: str) -> str:
    return sha256(f"{head} {text}".encode()).hexdigest()


def _parse_lines(lines: Sequence[str]) -> AuditLog:
    head, entries, serials = _FIRST_HASH, [], set[int]()
    for number, line in enumerate(lines, 1):
        line_hash, _, text = line.partition(" ")
        head = _line_hash(head, text)
        if line_hash != head:
            raise DamagedError(f"line {number} was changed, or a line before it is missing")
        try:
            entries.append(parse_entry(text))
        except NotAnEntryError as error:
            raise DamagedError(f"line {number}: {error}") from None
        _check_serial(entries[-1], serials, number)
    if not entries or not isinstance(entries[0], Begun):
        raise DamagedError("the first entry is missing")
    return AuditLog(tuple(entries), tuple(lines), head)


def _check_serial(entry: Entry, serials: set[int], number: int) -> None:
    """Raise DamagedError for a serial number that is issued twice, or revoked and never issued."""
    match entry:
        case Issued(serial=serial) if serial in serials:
            raise DamagedError(f"line {number} repeats a serial number")
        case Issued(serial=serial):
            serials.add(serial)
        case Revoked(serial=serial) if serial not in serials:
            raise DamagedError(f"line {number} revokes a certificate that was never issued")


def _check_seal(seal: str, log: AuditLog, key: ec.EllipticCurvePublicKey) -> None:
    word, _, rest = seal.partition(" ")
    line_count, _, signature = rest.partition(" ")
    if word != _SEAL:
        raise DamagedError("the signature is missing: the end was cut, or two versions were merged")
    if line_count != str(len(log.lines)):
        raise DamagedError(f"the signature covers {line_count} lines, and the file has {len(log.lines)}")
    try:
        key.verify(base64.b64decode(signature, validate=True), log.head.encode(), ec.ECDSA(HASH()))
    except (InvalidSignature, binascii.Error):
        raise DamagedError("the signature is not of this authority") from None


# The low bits of a serial are random: also after the loss of the log, no serial repeats.
_RANDOM_BITS = 64


@dataclass(frozen=True, slots=True)
class CertificateIndex:
    """All certificates and revocations by serial, and the newest revocation list."""

    issued: Mapping[int, Issued]
    revoked: Mapping[int, Revoked]
    listed: Listed | None
    regular: datetime | None
    """Start of the newest list that was signed because the list before was due, not because of a revocation."""
    newest: datetime
    """The time of the newest entry: an earlier time means that the clock is behind."""

    def current(self, name: str) -> Issued | None:
        """Return the certificate of a name that lasts longest, or None if the name was revoked since."""
        return _latest(
            self.revoked, [certificate for certificate in self.issued.values() if certificate.name == name]
        ).get(name)

    def valid(self, now: datetime) -> Iterator[Issued]:
        """Yield the valid certificates in the order of their issue."""
        return (
            certificate
            for certificate in self.issued.values()
            if certificate.serial not in self.revoked and certificate.until > now
        )

    def valid_of(self, names: Iterable[str], now: datetime) -> tuple[Issued, ...]:
        """Return the valid certificates of these names."""
        owners = set(names)
        return tuple(certificate for certificate in self.valid(now) if certificate.name in owners)

    def holders(self) -> Mapping[str, Issued]:
        """Return the certificate of each name that lasts longest, also an expired one, unless it was revoked since."""
        return dict(sorted(_latest(self.revoked, self.issued.values()).items()))

    def revocations(self) -> Iterator[Revocation]:
        """Yield the entries of the next revocation list.

        A revoked certificate stays until one regular list was signed after its end (RFC 5280 section 3.3).
        """
        for revoked in self.revoked.values():
            if self.regular is None or self.issued[revoked.serial].until >= self.regular:
                yield Revocation(revoked.serial, revoked.at, revoked.reason)

    def next_serials(self) -> Iterator[int]:
        """Yield unused, unpredictable serials in ascending order."""
        return (number << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS) for number in count(len(self.issued) + 1))

    def used_slots(self, now: datetime) -> Mapping[str, int]:
        """Return the slot of each laptop whose newest certificate has not expired."""
        return {name: held.slot for name, held in self.holders().items() if held.slot is not None and held.until > now}

    def slots(self, names: Iterable[str], now: datetime) -> Mapping[str, int]:
        """Return a slot for each laptop: its current one, its former one if that is free, or the lowest free one."""
        slots, former = dict(self.used_slots(now)), {name: held.slot for name, held in self.holders().items()}
        used, laptops = set(slots.values()), tuple(names)
        for name in laptops:
            if name not in slots:
                slots[name] = _free_slot(former.get(name), used)
                used.add(slots[name])
        return {name: slots[name] for name in laptops}


def _latest(revoked: Mapping[int, Revoked], issued: Iterable[Issued]) -> dict[str, Issued]:
    """Return, by name, the certificate that lasts longest of those that are not revoked.

    In a merged log the last entry may be the older certificate. A revocation covers all certificates of the name that
    were valid then; those that had expired before do not count after it.
    """
    latest: dict[str, Issued] = {}
    revoked_at: dict[str, datetime] = {}
    for certificate in issued:
        name = certificate.name
        if certificate.serial in revoked:
            revoked_at[name] = max(revoked[certificate.serial].at, revoked_at.get(name, certificate.at))
        elif name not in latest or certificate.until >= latest[name].until:
            latest[name] = certificate
    return {
        name: certificate
        for name, certificate in latest.items()
        if name not in revoked_at or certificate.until > revoked_at[name]
    }


def _free_slot(former: int | None, used: AbstractSet[int]) -> int:
    """Return the former slot if it is free, else the lowest free slot."""
    if former is not None and former not in used:
        return former
    return next(slot for slot in count() if slot not in used)


def index_of(log: AuditLog) -> CertificateIndex:
    """Return the index of a log's certificates."""
    listed = [entry for entry in log.entries if isinstance(entry, Listed)]
    return CertificateIndex(
        issued={entry.serial: entry for entry in log.entries if isinstance(entry, Issued)},
        revoked={entry.serial: entry for entry in log.entries if isinstance(entry, Revoked)},
        listed=listed[-1] if listed else None,
        regular=_newest_regular(listed),
        newest=max(entry.at for entry in log.entries),
    )


def _newest_regular(listed: Iterable[Listed]) -> datetime | None:
    """Return the start of the newest regular list: the first, and each that was signed when the one before was due."""
    regular: Listed | None = None
    for entry in listed:
        if regular is None or is_due(valid_from(regular.at), regular.until, entry.at):
            regular = entry
    return valid_from(regular.at) if regular else None
