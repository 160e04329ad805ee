"""The journal: who was issued what and what was revoked, each line bound to all before it, the whole signed.

A text that was cut, edited or written by anybody without the authority's key is refused; nothing here mends it.
"""

import base64
import binascii
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from vpn.authority import Reason, Revocation, counted_from, is_due
from vpn.certificates import HASH, Use

_LARGEST_SERIAL = 2**159 - 1  # RFC 5280 section 4.1.2.2: positive, and no more than 20 octets


class NotAnEntryError(ValueError):
    """A line that no entry is written like."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The authority that signs all later entries, and the key store it uses.

    `authority` and `root` are the SHA-256 of the certificates in authority.crt; `root` is empty without a root.
    `tls_crypt` is the SHA-256 of the gateways' tls-crypt-v2 key.
    """

    at: datetime
    fleet: str
    authority: str
    keys: str
    root: str = ""
    tls_crypt: str = ""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate; `key` is the SHA-256 of its public key, `slot` the number that a laptop's address follows from."""

    at: datetime
    serial: int
    name: str
    use: Use
    until: datetime
    key: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Revoked:
    """A certificate that counts no longer."""

    at: datetime
    serial: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of revoked certificates that was signed."""

    at: datetime
    number: int
    until: datetime


Entry = Begun | Issued | Revoked | Listed


def entry_text(entry: Entry) -> str:
    """Return an entry as one line."""
    return json.dumps(_document(entry), separators=(",", ":"))


def parse_entry(text: str) -> Entry:
    """Return the entry of a line; NotAnEntryError where it says anything else."""
    try:
        return _entry_entry(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotAnEntryError("it is not written as an entry is") from None


def moment_text(moment: datetime) -> str:
    """Return a moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _document(entry: Entry) -> dict[str, Any]:
    at = moment_text(entry.at)
    match entry:
        case Begun():
            kept = {"keys": entry.keys, "root": entry.root, "tls_crypt": entry.tls_crypt}
            return {"begun": entry.fleet, "at": at, "authority": entry.authority, **kept}
        case Issued():
            told = {"issued": entry.name, "at": at, "use": entry.use, "serial": f"{entry.serial:x}"}
            slot = {} if entry.slot is None else {"slot": entry.slot}
            return {**told, "until": moment_text(entry.until), "key": entry.key, **slot}
        case Revoked():
            return {"revoked": f"{entry.serial:x}", "at": at, "reason": entry.reason}
        case Listed():
            return {"listed": entry.number, "at": at, "until": moment_text(entry.until)}


def _entry_entry(told: dict[str, Any]) -> Entry:
    at = _moment(told["at"])
    if "begun" in told:
        fleet, *rest = (str(told[word]) for word in ("begun", "authority", "keys", "root", "tls_crypt"))
        return Begun(at, fleet, *rest)
    if "issued" in told:
        name, use, until = str(told["issued"]), Use(told["use"]), _moment(told["until"])
        return Issued(at, _serial(told["serial"]), name, use, until, str(told["key"]), _slot(told.get("slot")))
    if "revoked" in told:
        return Revoked(at, _serial(told["revoked"]), Reason(told["reason"]))
    return Listed(at, int(told["listed"]), _moment(told["until"]))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _serial(text: str) -> int:
    serial = int(text, 16)
    if not 0 < serial <= _LARGEST_SERIAL:
        raise NotAnEntryError("a serial number of no certificate")
    return serial


def _slot(value: int | None) -> int | None:
    return None if value is None else int(value)


_SEAL = "seal"
_START = "0" * 64


class DamagedError(ValueError):
    """A text that is no whole journal of this authority; `str` says from which line on."""


@dataclass(frozen=True, slots=True)
class Journal:
    """All entries in their order, the first of which begins it; `head` binds the last line to all before it.

    `sealed` is the text that it was read from, empty for one that was not written yet.
    """

    entries: tuple[Entry, ...]
    lines: tuple[str, ...]
    head: str
    sealed: str = ""

    @property
    def begun(self) -> Begun:
        """The entry that began it."""
        first = self.entries[0]
        assert isinstance(first, Begun)  # noqa: S101  # no journal is made without
        return first

    def with_entries(self, entries: Sequence[Entry]) -> "Journal":
        """Return the journal with more entries at its end."""
        return _joined(self, entries)

    def text(self, key: ec.EllipticCurvePrivateKey) -> str:
        """Return the text to be kept, sealed by the authority's key."""
        signature = base64.b64encode(key.sign(self.head.encode(), ec.ECDSA(HASH()))).decode()
        return "\n".join((*self.lines, f"{_SEAL} {len(self.lines)} {signature}", ""))


def new_journal(begun: Begun) -> Journal:
    """Return a journal that holds its beginning alone."""
    return _joined(Journal((), (), _START), (begun,))


def parse_journal(text: str, key: ec.EllipticCurvePublicKey) -> Journal:
    """Return the journal of a text; DamagedError unless it is whole and sealed by this key."""
    if not text.endswith("\n"):
        raise DamagedError("its last line is cut")
    *lines, seal = text.removesuffix("\n").split("\n")
    journal = _read(lines)
    _check_seal(seal, journal, key)
    return replace(journal, sealed=text)


def _joined(journal: Journal, entries: Sequence[Entry]) -> Journal:
    head, lines = journal.head, list(journal.lines)
    for entry in entries:
        written = entry_text(entry)
        head = _bound(head, written)
        lines.append(f"{head} {written}")
    return Journal((*journal.entries, *entries), tuple(lines), head)


def _bound(head: str, written: str) -> str:
    return sha256(f"{head} {written}".encode()).hexdigest()


def _read(lines: Sequence[str]) -> Journal:
    head, entries, serials = _START, [], set[int]()
    for number, line in enumerate(lines, 1):
        told, _, written = line.partition(" ")
        head = _bound(head, written)
        if told != head:
            raise DamagedError(f"line {number} is not what was written there, or a line before it is missing")
        entries.append(_entry(written, number))
        _check_serial(entries[-1], serials, number)
    if not entries or not isinstance(entries[0], Begun):
        raise DamagedError("its beginning is missing")
    return Journal(tuple(entries), tuple(lines), head)


def _entry(written: str, number: int) -> Entry:
    try:
        return parse_entry(written)
    except NotAnEntryError as error:
        raise DamagedError(f"line {number}: {error}") from None


def _check_serial(entry: Entry, serials: set[int], number: int) -> None:
    """Raise DamagedError for a serial number that is given twice, or taken back and was never given."""
    match entry:
        case Issued(serial=serial) if serial in serials:
            raise DamagedError(f"line {number} gives a serial number that was given before")
        case Issued(serial=serial):
            serials.add(serial)
        case Revoked(serial=serial) if serial not in serials:
            raise DamagedError(f"line {number} takes back a certificate that was never issued")


def _check_seal(seal: str, journal: Journal, key: ec.EllipticCurvePublicKey) -> None:
    word, _, rest = seal.partition(" ")
    count, _, signature = rest.partition(" ")
    if word != _SEAL:
        raise DamagedError("it has no seal: its end is missing, or two writers were merged")
    if count != str(len(journal.lines)):
        raise DamagedError(f"its seal is of {count} lines, and it has {len(journal.lines)}")
    try:
        key.verify(base64.b64decode(signature, validate=True), journal.head.encode(), ec.ECDSA(HASH()))
    except (InvalidSignature, binascii.Error):
        raise DamagedError("its seal is not of this authority") from None


# Below the number of the certificate, bits that nobody can guess: a journal that was lost repeats no serial.
_RANDOM_BITS = 64


@dataclass(frozen=True, slots=True)
class Roll:
    """All certificates by serial, and what became of them."""

    issued: Mapping[int, Issued]
    revoked: Mapping[int, Revoked]
    listed: Listed | None
    regular: datetime | None
    """As of when the newest list counts that was signed because one was due; each revocation signs one between."""
    newest: datetime
    """When the journal last grew: whoever signs before that has a clock that is behind."""

    def current(self, name: str) -> Issued | None:
        """Return the certificate of a name that lasts longest, unless the name was revoked since."""
        return _latest(self.revoked, [each for each in self.issued.values() if each.name == name]).get(name)

    def valid(self, now: datetime) -> Iterator[Issued]:
        """Yield the certificates that open a door today, in the order in which they were issued."""
        return (each for each in self.issued.values() if each.serial not in self.revoked and each.until > now)

    def holders(self) -> Mapping[str, Issued]:
        """Return the certificate of each name that lasts longest, ended ones too, unless the name was revoked since."""
        return dict(sorted(_latest(self.revoked, self.issued.values()).items()))

    def revocations(self) -> Iterator[Revocation]:
        """Yield what the next list has to hold.

        A revoked certificate stays until one regular list was signed after its end (RFC 5280 section 3.3).
        """
        for each in self.revoked.values():
            if self.regular is None or self.issued[each.serial].until >= self.regular:
                yield Revocation(each.serial, each.at, each.reason)

    def next_serials(self) -> Iterator[int]:
        """Yield serials that were never given and that nobody can foresee; they grow."""
        return (number << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS) for number in count(len(self.issued) + 1))

    def seats(self, now: datetime) -> Mapping[str, int]:
        """Return the number of each laptop that holds one: whose newest certificate has not ended."""
        return {name: each.slot for name, each in self.holders().items() if each.slot is not None and each.until > now}

    def slots(self, names: Iterable[str], now: datetime) -> Mapping[str, int]:
        """Return a number for each laptop: its own, the one it had where nobody holds that now, or the lowest free."""
        held, had = dict(self.seats(now)), {name: each.slot for name, each in self.holders().items()}
        taken, wanted = set(held.values()), tuple(names)
        for name in wanted:
            if name not in held:
                held[name] = _free(had.get(name), taken)
                taken.add(held[name])
        return {name: held[name] for name in wanted}


def _latest(revoked: Mapping[int, Revoked], issued: Iterable[Issued]) -> dict[str, Issued]:
    """Return, by name, the certificate that lasts longest of those that nobody took back.

    In journals that were joined the last that was entered may be the older. Who revokes a name takes back whatever of
    it counts then: what had ended before counts for nothing after it.
    """
    latest: dict[str, Issued] = {}
    gone: dict[str, datetime] = {}
    for each in issued:
        if each.serial in revoked:
            gone[each.name] = max(revoked[each.serial].at, gone.get(each.name, each.at))
        elif each.name not in latest or each.until >= latest[each.name].until:
            latest[each.name] = each
    return {name: each for name, each in latest.items() if name not in gone or each.until > gone[name]}


def _free(former: int | None, taken: AbstractSet[int]) -> int:
    """Return the former number where nobody has it, or the lowest that is free."""
    if former is not None and former not in taken:
        return former
    return next(number for number in count() if number not in taken)


def roll_of(journal: Journal) -> Roll:
    """Return what a journal comes to."""
    listed = [entry for entry in journal.entries if isinstance(entry, Listed)]
    return Roll(
        issued={entry.serial: entry for entry in journal.entries if isinstance(entry, Issued)},
        revoked={entry.serial: entry for entry in journal.entries if isinstance(entry, Revoked)},
        listed=listed[-1] if listed else None,
        regular=_regular(listed),
        newest=max(entry.at for entry in journal.entries),
    )


def _regular(listed: Iterable[Listed]) -> datetime | None:
    """Return as of when the newest regular list counts: the first, and each that the one before it left due."""
    regular: Listed | None = None
    for each in listed:
        if regular is None or is_due(counted_from(regular.at), regular.until, each.at):
            regular = each
    return counted_from(regular.at) if regular else None
