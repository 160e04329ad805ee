"""Change the VPN certificates once, between two marks for a tracer; the arguments are the change and the folder.

All imports are before the first mark: a crash test counts the system calls between the marks.
"""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bedplate.errors import BedplateError
from vpn.audit_log import Begun
from vpn.authority import Reason
from vpn.certificates import laptop
from vpn.gateways import make_shared_keys
from vpn.pki import FOLDER, FolderKeys, Pki, PkiFolder, create_authority, open_pki, write_new_root
from vpn.signing import add, renew, renew_crl, revoke

MOMENT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = MOMENT + timedelta(days=60)
PAIRS = tuple(frozenset(pair) for pair in (("eu-north-1", "us-east-1"), ("eu-north-1", "us-west-2")))
CHANGES: dict[str, Callable[[Pki], object]] = {
    "add": lambda pki: add(pki, [laptop("grace")], MOMENT, bytes),
    "renew": lambda pki: renew(pki, [laptop("ada")], MOMENT, bytes),
    "revoke": lambda pki: revoke(pki, ["ada.laptop"], Reason.LOST, MOMENT, bytes),
    "relist": lambda pki: renew_crl(pki, LATER, bytes),
    "make keys": lambda pki: make_shared_keys(pki, PAIRS, bytes, anew=True),
}


def change(what: str, folder: PkiFolder) -> None:
    """Make one change in a folder; `begin` creates the certificate authority, `root` an external root."""
    store = FolderKeys(folder.keys)
    if what == "root":
        write_new_root(root_of(folder), "lab", folder, MOMENT, None)
    elif what == "begin":
        create_authority(folder, Begun(MOMENT, "lab", "", FOLDER, "", ""), store)
    else:
        CHANGES[what](open_pki(folder, "lab", lambda _: store))


def root_of(folder: PkiFolder) -> Path:
    """Return the path of the external root key for a folder, on another disk."""
    return folder.path.parents[1] / f"{folder.path.parent.name} disk" / "root.key"


def main() -> int:
    """Make the change between the marks; return the exit status of the command line."""
    os.write(1, b"@@start\n")
    try:
        change(sys.argv[1], PkiFolder(Path(sys.argv[2])))
    except BedplateError as error:
        sys.stderr.write(f"{error.what}; {error.fix}\n")
        return error.exit_code
    finally:
        os.write(1, b"@@end\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
