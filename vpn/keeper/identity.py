"""What a gateway proves itself by: its certificate and keys, taken in together, and only where they belong together."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .place import Place
from .trouble import Refusal

NAMES = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
_SECRET = ("server.key", "tls-crypt-v2.key")


@contextmanager
def fresh_identity(place: Place, files: Mapping[str, str] | None) -> Iterator[Path | None]:
    """Yield the folder of a new certificate and keys, not yet checked nor in force; None if none is new.

    Nobody but the daemons' own account reads the keys, at any instant.
    """
    if files is None or all(_text(place.settings / name) == files[name] for name in NAMES):
        yield None
        return
    fresh = Path(tempfile.mkdtemp(prefix=".identity-", dir=place.settings))
    try:
        for name in NAMES:
            _write(fresh / name, files[name], place.owner)
        yield fresh
    finally:
        shutil.rmtree(fresh)


def put_identity(place: Place, fresh: Path) -> None:
    """Put a certificate and its keys in force for daemons that start."""
    for name in NAMES:
        (fresh / name).replace(place.settings / name)


def _write(path: Path, text: str, owner: str) -> None:
    secret = path.name in _SECRET
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400 if secret else 0o444)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(handle)
        if secret:
            os.fchown(handle, _account(owner), -1)


def _account(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refusal(f"there is no account {name} here: apply the role openvpn first") from None


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
