"""The entries of the journal, and how each is written: one JSON object a line, read back strictly."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vpn.revocation import Reason
from vpn.subject import Use

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
        return _entry(json.loads(text))
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


def _entry(told: dict[str, Any]) -> Entry:
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
