"""A file of a node that is written whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, body: bytes) -> None:
    """Write a file; one that is there keeps its owner and its mode, and a link is followed."""
    place = path.resolve()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".bedplate-")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _like(handle, place)
            file.write(body)
            file.flush()
            os.fsync(handle)
        _take_place(beside, place, body)
    finally:
        beside.unlink(missing_ok=True)


def _like(handle: int, path: Path) -> None:
    try:
        before = path.stat()
    except FileNotFoundError:
        os.fchmod(handle, 0o644)
    else:
        os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, before.st_mode & 0o7777)


def _take_place(beside: Path, path: Path, body: bytes) -> None:
    try:
        beside.replace(path)
    except OSError as error:
        # A file that is mounted over cannot be replaced, only written to.
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        path.write_bytes(body)
