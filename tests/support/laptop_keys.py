"""The keys of gateways and laptops for a laboratory: made by the fleet's own authority, or wrongly on purpose."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from vpn.authority import new_authority
from vpn.certificate import Issuer, certificate_text, issue, key_text, new_key
from vpn.laptops.profile import LaptopKeys
from vpn.revocation import Reason, Revocation, list_text, signed_list
from vpn.subject import Subject, Use
from vpn.tls_crypt import client_key, new_server_key

LONG = timedelta(days=90)


def moment() -> datetime:
    """Return this moment: daemons go by the clock of the machine, whatever day it is for other tests."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class LabKeys:
    """An authority, its gateways' hidden key, and how far its serials and lists have come."""

    issuer: Issuer = field(default_factory=lambda: new_authority("lab", moment() - timedelta(days=30)))
    hidden: str = field(default_factory=new_server_key)
    _serials: Iterator[int] = field(default_factory=lambda: count(1))
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _revoked: dict[str, Revocation] = field(default_factory=dict)
    _serial_of: dict[str, int] = field(default_factory=dict)

    @property
    def trusted(self) -> str:
        """Who signs, as PEM."""
        return certificate_text(self.issuer.certificate)

    def pair(self, name: str, use: Use, at: datetime | None = None) -> tuple[str, str]:
        """Return a certificate as of a moment, and its key."""
        key, serial = new_key(), next(self._serials)
        self._serial_of[name] = serial
        signed = issue(self.issuer, Subject(name, use), key.public_key(), serial, at or moment())
        return certificate_text(signed), key_text(key)

    def laptop(self, name: str, use: Use = Use.CLIENT, at: datetime | None = None) -> LaptopKeys:
        """Return the keys of a laptop; of another use, or another time, where a test is to see them refused."""
        certificate, key = self.pair(name, use, at)
        return LaptopKeys(self.trusted, certificate, key, client_key(self.hidden, name))

    def revoke(self, name: str) -> int:
        """Take back the newest certificate of a name, and return its serial."""
        serial = self._serial_of[name]
        self._revoked[name] = Revocation(serial, moment(), Reason.LOST)
        return serial

    def revocations(self, life: timedelta = LONG, at: datetime | None = None) -> str:
        """Return the next list of what was taken back, as PEM."""
        return list_text(signed_list(self.issuer, self._revoked.values(), next(self._numbers), at or moment(), life))
