"""The public keys of apt repositories: their pinned fingerprints, the days on which they end, and their renewal."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256

from bedplate.catalog.tables import ABSENT
from bedplate.errors import ViolationError


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What gpg reads from a text: the fingerprints of its primary keys, and when the first of them ends."""

    fingerprints: frozenset[str]
    ends: date | None


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The key of a repository: `fingerprint` never changes; `checksum` is the SHA-256 of the copy, `text`."""

    name: str
    fingerprint: str
    ends: date | None
    checksum: str
    address: str
    text: str = ""

    def renewed(self, text: str, key: PublicKey) -> "KeyFacts":
        """Return the facts of a newer copy; the old ones if it ends earlier. Raises ViolationError for another key."""
        if key.fingerprints != {self.fingerprint}:
            others = ", ".join(sorted(key.fingerprints)) or "no key"
            raise ViolationError(
                f"{self.address} has {others}, expected {self.fingerprint} only",
                fix="do not use the key; ask the vendor of the repository why it has changed",
            )
        return self.later(replace(self, ends=key.ends, checksum=sha256(text.encode()).hexdigest(), text=text))

    def later(self, other: "KeyFacts") -> "KeyFacts":
        """Return another copy of the key, unless it is another key or ends earlier."""
        is_earlier = (other.ends or date.max) < (self.ends or date.max)
        return self if is_earlier or other.fingerprint != self.fingerprint else other


def read_keys(rows: Iterable[str]) -> dict[str, KeyFacts]:
    """Return the keys by repository."""
    cells = (row.split("\t") for row in rows)
    return {
        name: KeyFacts(name, fingerprint, None if ends == ABSENT else date.fromisoformat(ends), checksum, address)
        for name, fingerprint, ends, checksum, address in cells
    }


def write_keys(keys: Mapping[str, KeyFacts]) -> tuple[str, ...]:
    """Return one row per key."""
    return tuple(
        "\t".join((key.name, key.fingerprint, key.ends.isoformat() if key.ends else ABSENT, key.checksum, key.address))
        for key in keys.values()
    )
