"""The journal: who was issued what and what was revoked, each line bound to all before it, the whole signed.

A text that was cut, edited or written by anybody without the authority's key is refused; nothing here mends it.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from vpn.certificate import HASH
from vpn.entry import Begun, Entry, Issued, NotAnEntryError, Revoked, entry_text, parse_entry

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
