"""Additional apt repositories, each with its signing key and a list of pinned packages.

For roles whose packages the distribution lacks, such as `nvidia`. apt installs only the pinned packages from such
a repository, even if it has newer versions of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from pyinfra.operations import apt

from roles.base import Changes, changed
from roles.files import ManagedFile, put_files

_NEVER, _PREFERRED = -1, 990


@dataclass(frozen=True, slots=True)
class Pin:
    """Packages (apt patterns) and the version to install: `1.33.*`."""

    packages: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Repository:
    """An apt repository; `key` is its ASCII-armoured public key, `key_sum` the SHA-256 of that text.

    Raises ValueError if the key has another checksum.
    """

    name: str
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: str
    key_sum: str
    pins: tuple[Pin, ...]

    def __post_init__(self) -> None:
        digest = sha256(self.key.encode()).hexdigest()
        if digest != self.key_sum:
            raise ValueError(f"{self.name}: the key has the SHA-256 {digest}, not {self.key_sum}")

    @property
    def files(self) -> tuple[ManagedFile, ManagedFile, ManagedFile]:
        """The key, the source and the pins."""
        keyring = f"/etc/apt/keyrings/{self.name}.asc"
        return (
            ManagedFile(f"Write the key of repository {self.name}", keyring, self.key),
            ManagedFile(
                f"Write the source of repository {self.name}",
                f"/etc/apt/sources.list.d/{self.name}.sources",
                self._source(keyring),
            ),
            ManagedFile(
                f"Write the pins of repository {self.name}", f"/etc/apt/preferences.d/{self.name}", self._preferences()
            ),
        )

    def _source(self, keyring: str) -> str:
        fields = {"Types": "deb", "URIs": self.uri, "Suites": " ".join(self.suites)}
        fields |= {"Components": " ".join(self.components)} if self.components else {}
        return "".join(f"{name}: {value}\n" for name, value in (*fields.items(), ("Signed-By", keyring)))

    def _preferences(self) -> str:
        """Return the pins: apt installs only the named versions from this repository."""
        # A pin by name precedes one by `*`; its priority applies to every origin of that version.
        pins = "".join(_stanza(" ".join(pin.packages), f"version {pin.version}", _PREFERRED) for pin in self.pins)
        return pins + _stanza("*", f'origin "{urlsplit(self.uri).hostname or ""}"', _NEVER)


def add(repositories: Sequence[Repository]) -> Changes:
    """Declare repositories; apt lists are updated after a change."""
    changes = put_files(*(file for repository in repositories for file in repository.files))
    apt.update(name="Update the apt lists of other repositories", _if=changed(changes))
    return changes


def _stanza(packages: str, pin: str, priority: int) -> str:
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n\n"
