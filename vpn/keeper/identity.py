"""What a gateway proves itself by: its certificate and keys, taken in together, and only where they belong together."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .certificate import check_identity
from .place import Place
from .trouble import Refusal

NAMES = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
_SECRET = ("server.key", "tls-crypt-v2.key")


def take_identity(place: Place, files: Mapping[str, str]) -> bool:
    """Put a gateway's certificate and keys in place, and tell whether any is new; Refusal where they do not agree.

    Nobody but the daemons' own account reads the keys, at any instant.
    """
    if all(_text(place.settings / name) == files[name] for name in NAMES):
        return False
    fresh = Path(tempfile.mkdtemp(prefix=".identity-", dir=place.settings))
    try:
        for name in NAMES:
            _write(fresh / name, files[name], place.owner)
        check_identity(*(fresh / name for name in NAMES[:3]))
        for name in NAMES:
            (fresh / name).replace(place.settings / name)
    finally:
        shutil.rmtree(fresh)
    return True


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
