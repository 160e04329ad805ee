"""Archives of packages beside the distribution's: each with the one key that may sign it, and only for what is pinned.

For roles whose packages the distribution lacks; none needs one yet.
What a repository holds beyond its pins is never taken from it, not even in a newer version than the distribution's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from pyinfra.operations import apt
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.files import Shipped, ship

_NEVER, _WANTED = -1, 990


@dataclass(frozen=True, slots=True)
class Pin:
    """Packages, as apt's patterns, and the version that may be installed: `1.33.*`."""

    packages: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Repository:
    """An archive; `key` is its public key in armour, `key_sum` the SHA-256 of that text.

    Raises ValueError where the key does not have this sum.
    """

    name: str
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: str
    key_sum: str
    pins: tuple[Pin, ...]

    def __post_init__(self) -> None:
        found = sha256(self.key.encode()).hexdigest()
        if found != self.key_sum:
            raise ValueError(f"{self.name}: the key has the SHA-256 {found}, not {self.key_sum}")

    @property
    def files(self) -> tuple[Shipped, Shipped, Shipped]:
        """Its key, its source, its pins."""
        keyring = f"/etc/apt/keyrings/{self.name}.asc"
        return (
            Shipped(f"Key of {self.name}", keyring, self.key),
            Shipped(f"Source {self.name}", f"/etc/apt/sources.list.d/{self.name}.sources", self._source(keyring)),
            Shipped(f"Pins of {self.name}", f"/etc/apt/preferences.d/{self.name}", self._preferences()),
        )

    def _source(self, keyring: str) -> str:
        fields = {"Types": "deb", "URIs": self.uri, "Suites": " ".join(self.suites)}
        fields |= {"Components": " ".join(self.components)} if self.components else {}
        return "".join(f"{name}: {value}\n" for name, value in (*fields.items(), ("Signed-By", keyring)))

    def _preferences(self) -> str:
        """Return the pins: apt takes a package from here only in the version that is named."""
        # A stanza by name goes before one by `*`, and its priority holds for every origin of that version.
        named = "".join(_stanza(" ".join(pin.packages), f"version {pin.version}", _WANTED) for pin in self.pins)
        return named + _stanza("*", f'origin "{urlsplit(self.uri).hostname or ""}"', _NEVER)


def add(repositories: Sequence[Repository]) -> Changes:
    """Declare repositories; their lists are fetched when one of them is new or another."""
    changes = ship(*(file for each in repositories for file in each.files))
    apt.update(name="Lists of other archives", _if=any_changed(*changes))
    return changes


def _stanza(packages: str, pin: str, priority: int) -> str:
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n\n"
