"""The stack lock: dated sets of versions that were published together, and checksums of what nodes download."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from bedplate.catalog.tables import ABSENT
from bedplate.errors import ViolationError

EFA_SUM, NVIDIA_KEY_SUM = "efa-sha256", "nvidia-key-sha256"
CHECKSUMS = (EFA_SUM, NVIDIA_KEY_SUM)
_VERIFIED, _UNVERIFIED = "verified", "unverified"


@dataclass(frozen=True, slots=True)
class StackItem:
    """A version or checksum, empty if it is unknown; `verified` if it was read at the source, an address."""

    value: str
    verified: bool
    source: str


@dataclass(frozen=True, slots=True)
class StackLock:
    """One set: its month (`2026-11`), and its items by name: `kernel`, `driver`, `dcgm`, `efa`, ..."""

    name: str
    items: Mapping[str, StackItem]

    def value(self, item: str) -> str:
        """Return a version or checksum; empty if it is unknown."""
        return self.items[item].value

    def checksum(self, item: str) -> str:
        """Return a verified checksum; empty if nobody has compared it with its source."""
        return self.value(item) if self.items[item].verified else ""

    @property
    def driver(self) -> str:
        """The branch of NVIDIA's driver, such as 580."""
        return self.value("driver").partition(".")[0]

    def with_checksum(self, item: str, value: str) -> "StackLock":
        """Return the set with a checksum from its source; raise ViolationError if another one is known."""
        known = self.items[item]
        if known.value not in ("", value):
            raise ViolationError(
                f"{known.source} has another checksum than stack {self.name}: {value}, expected {known.value}",
                fix="do not use the download; update bedplate, or ask its vendor why the checksum changed",
            )
        known = replace(known, value=value, verified=True)
        return replace(self, items={**self.items, item: known})


def read_stacks(rows: Iterable[str]) -> dict[str, StackLock]:
    """Return the sets by name, the oldest first."""
    tables: dict[str, dict[str, StackItem]] = {}
    for row in rows:
        name, item, value, state, source = row.split("\t")
        known = StackItem("" if value == ABSENT else value, state == _VERIFIED, source)
        tables.setdefault(name, {})[item] = known
    return {name: StackLock(name, tables[name]) for name in sorted(tables)}


def write_stacks(stacks: Mapping[str, StackLock]) -> tuple[str, ...]:
    """Return one row per item."""
    return tuple(row for stack in stacks.values() for row in _write_stack(stack))


def _write_stack(stack: StackLock) -> Iterator[str]:
    for item, known in stack.items.items():
        state = _VERIFIED if known.verified else _UNVERIFIED
        yield "\t".join((stack.name, item, known.value or ABSENT, state, known.source))


_TAG = re.compile(r"<[^>]*>")
_EFA_ENTRY = re.compile(r"EFA (\d+\.\d+\.\d+)\b((?:(?!EFA \d).)*?)SHA256\W*([0-9a-f]{64})\b", re.DOTALL)
_KEY_HEADER = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


def efa_checksums(page: str) -> dict[str, str]:
    """Return the SHA-256 of the EFA installers on AWS's page "Verify the EFA installer", by version."""
    return {version: digest for version, _, digest in _EFA_ENTRY.findall(_TAG.sub(" ", page))}


def with_published(stacks: Mapping[str, StackLock], efa_page: str, key: str) -> dict[str, StackLock]:
    """Return the sets with the checksums of AWS's page and of NVIDIA's key.

    Installers that the page lacks stay unverified. Raises ViolationError for a key or a checksum that has changed.
    """
    if _KEY_HEADER not in key:
        raise ViolationError("the key of NVIDIA's repository is not a public key", fix="run it again without a proxy")
    published, key_sum = efa_checksums(efa_page), sha256(key.encode()).hexdigest()
    keyed = {name: stack.with_checksum(NVIDIA_KEY_SUM, key_sum) for name, stack in stacks.items()}
    return {
        name: stack.with_checksum(EFA_SUM, published[stack.value("efa")]) if stack.value("efa") in published else stack
        for name, stack in keyed.items()
    }
