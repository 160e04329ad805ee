"""Reads the text of a fleet file, and the few facts that `vpn add` needs without the models, slow to import."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from ipaddress import IPv4Network
from pathlib import Path

from bedplate.checks import file as rules
from bedplate.errors import InputError, nearest
from bedplate.foreign import parse_json
from bedplate.load.yaml import Composer, Node, Place, Unreadable, place_after
from bedplate.rules import Rule

LARGEST = 1024 * 1024
STDIN = Path("-")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "a byte order mark", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
# Not printable in YAML 1.2 (production 1), line ends of YAML 1.1, and bidirectional controls.
_INVISIBLE = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028-\u202e\u2066-\u2069\ufeff]"
)
# In the indentation, or after the colon of a key.
_NON_BREAKING_SPACE = re.compile(r"(?m)^(?:[ -]*|[^#\n'\":]*:|[^#\n'\"]*[{,] *[\w-]+:)(\xa0)")
_START = Place(1, 1)


def read_source(path: Path) -> str:
    """Return the text of the file, or of stdin for `-`; raise Unreadable with the fault otherwise."""
    try:
        if path != STDIN:
            _check_kind(path.stat(), path)
            _check_link(path)
        return _decode(_read(path))
    except FileNotFoundError:
        near = nearest(path.name, _yaml_names(path.parent))
        fix = f"write {path.with_name(near)}" if near else ""
        raise Unreadable(rules.MISSING_FILE, f"{path} does not exist", _START, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid path"
        raise _at_start(rules.UNREADABLE_FILE, f"cannot read {str(path)!r}: {reason}") from None


def _yaml_names(folder: Path) -> list[str]:
    """Return the names of YAML files in a folder; none if it cannot be read."""
    with suppress(OSError):
        return [path.name for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
    return []


def _check_kind(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise _at_start(rules.NOT_A_FILE, f"{path} is {_KINDS.get(kind, 'a special file')}, not a file")
    if status.st_size > LARGEST:
        raise _at_start(rules.FILE_TOO_LARGE, f"{path} has {status.st_size:,} bytes; the limit is {LARGEST:,}")


def _check_link(path: Path) -> None:
    """Refuse a link to another folder: the checked content must be the committed content."""
    folder = path.parent.resolve()
    if path.is_symlink() and not path.resolve().is_relative_to(folder):
        raise _at_start(rules.LINK_OUTSIDE_FOLDER, f"{path} is a link to a file outside {folder}")


def _read(path: Path) -> bytes:
    """Read at most one byte more than allowed: the file may have changed since the check of its size."""
    number = os.dup(0) if path == STDIN else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as file:
        if path != STDIN:
            _check_kind(os.fstat(number), path)
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _at_start(rules.FILE_TOO_LARGE, f"{path} has more than {LARGEST:,} bytes")
    return data


def _at_start(rule: Rule, message: str) -> Unreadable:
    return Unreadable(rule, message, _START)


def _decode(data: bytes) -> str:
    """Return the text of UTF-8 data with printable characters only."""
    mark = next((name for start, name in _BYTE_ORDER_MARKS.items() if data.startswith(start)), None)
    if mark:
        raise Unreadable(rules.NOT_UTF8, f"the file starts with {mark}", _START)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = place_after(data[: error.start].decode())
        raise Unreadable(rules.NOT_UTF8, f"byte {error.start:,} of the file is not UTF-8", place) from None
    match = _INVISIBLE.search(text)
    if match:
        message = f"the file contains the character U+{ord(match[0]):04X}"
        raise Unreadable(rules.CONTROL_CHARACTER, message, place_after(text[: match.start()]))
    match = _NON_BREAKING_SPACE.search(text)
    if match:
        fix = "replace it by a space"
        raise Unreadable(rules.CONTROL_CHARACTER, "a non-breaking space", place_after(text[: match.start(1)]), fix=fix)
    return text


# https://reproducible-builds.org/specs/source-date-epoch/, read 2026-11.
EPOCH = "SOURCE_DATE_EPOCH"


def today() -> date:
    """Return the date in UTC, or that of SOURCE_DATE_EPOCH; raise InputError if its value is invalid."""
    seconds = os.environ.get(EPOCH)
    if seconds is None:
        return datetime.now(UTC).date()
    try:
        return datetime.fromtimestamp(int(seconds), UTC).date()
    except (ValueError, OverflowError, OSError):
        message = f"{EPOCH} must be a number of seconds since 1970"
        raise InputError(message, fix=f"correct or unset {EPOCH}") from None


@dataclass(frozen=True, slots=True)
class Users:
    """The name of a fleet, the names of its people, and the places of their laptops' gateways."""

    fleet: str
    people: tuple[str, ...]
    gateways: tuple[str, ...]


def read_users(path: Path) -> Users | None:
    """Return the users of a fleet file, or None if the file is not valid so far."""
    try:
        composer = Composer(read_source(path))
        tree = composer.compose()
    except Unreadable:
        return None
    fleet, people = tree.child("name"), tree.child("people")
    if composer.faults or fleet is None or not isinstance(fleet.value, str):
        return None
    return Users(fleet.value, _names(people), tuple(_gateways(tree)))


def _names(people: Node | None) -> tuple[str, ...]:
    return tuple(people.value) if people is not None and isinstance(people.value, dict) else ()


def _gateways(tree: Node) -> Iterator[str]:
    """Yield the place of each gateway of laptops."""
    below: Node | None = tree
    for key in ("vpn", "laptops", "gateways"):
        below = below.child(key) if below else None
    for gateway in below.children if below else ():
        place = gateway.child("region") or gateway.child("site")
        if place is not None and isinstance(place.value, str):
            yield place.value


def read_pools(lock: Path, places: Iterable[str]) -> tuple[IPv4Network, ...]:
    """Return the address pools of these places from the lock, or none if one of them is missing."""
    if not lock.is_file():  # a fault of a missing file would import the rules of all checks
        return ()
    try:
        blocks = parse_json(read_source(lock), LARGEST)["blocks"]
        return tuple(IPv4Network(str(blocks[f"pool/{place}"])) for place in places)
    except (Unreadable, ValueError, LookupError, TypeError):
        return ()
