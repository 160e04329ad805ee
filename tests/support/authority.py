"""A fleet's VPN authority for tests, at a moment that each test sets, with keys in the test's own folder."""

from datetime import UTC, datetime
from pathlib import Path

from vpn.certificate import Issuer
from vpn.entry import Begun, Issued
from vpn.key_store import FOLDER, FolderKeys
from vpn.pki import Pki, begin, open_pki
from vpn.pki_folder import PkiFolder
from vpn.signing import add
from vpn.subject import laptop

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FLEET = "lab"


def unasked() -> bytes:
    """Stand where somebody would be asked for a passphrase, and nobody is to be."""
    raise AssertionError("nobody was to be asked for a passphrase")


def begun_in(path: Path, now: datetime = NOW, *, lock: bytes | None = None, root: Issuer | None = None) -> PkiFolder:
    """Begin an authority in `fleet.pki` below a folder."""
    folder = PkiFolder(path / "fleet.pki")
    begin(folder, Begun(now, FLEET, "", FOLDER), FolderKeys(folder.keys), lock=lock, root=root)
    return folder


def pki_in(folder: PkiFolder) -> Pki:
    """Return what a folder holds now."""
    return open_pki(folder, FLEET, lambda _begun: FolderKeys(folder.keys))


def added(folder: PkiFolder, *users: str, now: datetime = NOW) -> tuple[Issued, ...]:
    """Issue a certificate for a laptop of each user."""
    return add(pki_in(folder), [laptop(user) for user in users], now, unasked)
