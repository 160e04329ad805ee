"""The text of a fleet file: opened without ever hanging, bounded, and decoded strictly."""

import os
import re
import stat
from datetime import UTC, date, datetime
from pathlib import Path

from bedplate.errors import InputError
from bedplate.load.yaml import Place, Unreadable, place_after

LARGEST = 1024 * 1024
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MARKS = {b"\xef\xbb\xbf": "a byte order mark", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
# What YAML 1.2 does not call printable (production 1), line ends of YAML 1.1, marks of order and direction.
_UNSEEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028-\u202e\u2066-\u2069\ufeff]"
)
_START = Place(1, 1)


def read_source(path: Path) -> str:
    """Return the text of the file; Unreadable says why it was not read."""
    try:
        _check_kind(path.stat(), path)
        _check_link(path)
        return _decode(_read(path))
    except FileNotFoundError:
        raise _at_start("E001", f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path is like that"
        raise _at_start("E005", f"{str(path)!r} cannot be read: {reason}") from None


def _check_kind(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise _at_start("E002", f"{path} is {_KINDS.get(kind, 'something else')}, not a file")
    if status.st_size > LARGEST:
        raise _at_start("E004", f"{path} has {status.st_size:,} bytes; {LARGEST:,} is the most")


def _check_link(path: Path) -> None:
    """Refuse a link out of the folder in which it lies: what is checked must be what is committed."""
    folder = path.parent.resolve()
    if path.is_symlink() and not path.resolve().is_relative_to(folder):
        raise _at_start("E003", f"{path} is a link that leaves {folder}")


def _read(path: Path) -> bytes:
    """Read at most one byte more than is allowed: the file may have changed since it was looked at."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _check_kind(os.fstat(file.fileno()), path)
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _at_start("E004", f"{path} has more than {LARGEST:,} bytes")
    return data


def _at_start(code: str, message: str) -> Unreadable:
    return Unreadable(code, message, _START)


def _decode(data: bytes) -> str:
    """Return the text, which must be UTF-8 and hold only what YAML calls printable."""
    mark = next((name for start, name in _MARKS.items() if data.startswith(start)), None)
    if mark:
        raise Unreadable("E006", f"the file starts with {mark}", _START)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = place_after(data[: error.start].decode())
        raise Unreadable("E006", f"byte {error.start:,} of the file is not UTF-8", place) from None
    unseen = _UNSEEN.search(text)
    if unseen:
        message = f"the file holds the character U+{ord(unseen[0]):04X}"
        raise Unreadable("E007", message, place_after(text[: unseen.start()]))
    return text


# How builds are told to act as of a moment: https://reproducible-builds.org/specs/source-date-epoch/, read 2026-11.
EPOCH = "SOURCE_DATE_EPOCH"


def today() -> date:
    """Return the day in UTC, or that of SOURCE_DATE_EPOCH where it is set; InputError when that is no moment."""
    told = os.environ.get(EPOCH)
    if told is None:
        return datetime.now(UTC).date()
    try:
        return datetime.fromtimestamp(int(told), UTC).date()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{EPOCH} is no number of seconds since 1970", fix=f"unset {EPOCH}") from None
