"""Where private keys lie: a folder of 0600 beside the fleet file, or the account. The store knows names, not uses."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bedplate.errors import InputError
from bedplate.writer import told_plainly, write_together

AUTHORITY, TLS_CRYPT = "authority", "tls-crypt-v2"
# What the journal calls the store that is a folder.
FOLDER = "folder"
_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700
_OTHERS = 0o077


class KeyStore(Protocol):
    """Texts by name; what is written is there, whole, when the call returns."""

    def read(self, name: str) -> str | None:
        """Return a text, or None where there is none of that name."""

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts, each in place of what had its name."""


@dataclass(frozen=True, slots=True)
class FolderKeys:
    """A file for each name, in a folder that is its owner's alone."""

    folder: Path

    def read(self, name: str) -> str | None:
        """Return a text; MachineError if it may not be read, InputError if others may read or write it."""
        path = self._path(name)
        if not os.path.lexists(path):
            return None
        if path.is_file() and path.stat().st_mode & _OTHERS:
            raise InputError(
                "others may read or write this private key", where=str(path), fix=f"chmod 600 {shlex.quote(str(path))}"
            )
        with told_plainly(path, "read"):
            return path.read_text(encoding="ascii")

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts in files of 0600, which they are from their first byte on."""
        with told_plainly(self.folder):
            self.folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        write_together({self._path(name): text.encode() for name, text in texts.items()}, _PRIVATE)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.pem"
