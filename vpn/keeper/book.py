"""The book of a gateway: who is let in, under which address, and whose certificates were taken back.

It is sent whole each time, so that a gateway that missed one has everything after the next.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .certificate import check_issuer, crl_end, crl_number
from .identity import NAMES, take_identity
from .management import ask
from .place import TRANSPORTS, Place
from .sessions import end_sessions
from .trouble import Refusal

# A file called DEFAULT would let everybody in.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}", re.ASCII)
_ADDRESS = re.compile(r"ifconfig-push [0-9.]+ [0-9.]+\n", re.ASCII)


@dataclass(frozen=True)
class Book:
    """What the operator's machine sends: `laptops` holds the file of each laptop by transport and name.

    `identity` holds the gateway's certificate and keys, where they are sent along.
    """

    crl: str
    laptops: Mapping[str, Mapping[str, str]]
    cut: tuple[str, ...]
    identity: Mapping[str, str] | None = None


def parse_book(text: str) -> Book:
    """Return the book that a text holds; raises Refusal for anything else."""
    try:
        told = json.loads(text)
        laptops = {each: told["laptops"][each] for each in TRANSPORTS}
        identity = told.get("identity") and {name: str(told["identity"][name]) for name in NAMES}
        book = Book(told["crl"], laptops, tuple(told["cut"]), identity)
        names = {*book.cut, *(name for files in book.laptops.values() for name in files)}
        files = [file for each in book.laptops.values() for file in each.values()]
        whole = all(map(_NAME.fullmatch, names)) and all(map(_ADDRESS.fullmatch, files))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refusal(f"that is no book of laptops: {error!r}") from None
    if not whole:
        raise Refusal("that is no book of laptops: it holds a name or an address that bedplate never writes")
    return book


def take(place: Place, book: Book) -> dict[str, object]:
    """Put the book in force, end the sessions of whoever it lets in no more, and return what was done.

    The list comes first and the sessions last: whoever is cut off finds the door shut. Raises Refusal, before
    anybody is let in or out, for a list that is over, older than the one in force, or of another authority. A new
    certificate is taken up by daemons that start anew, which laptops notice for seconds.
    """
    with _alone(place):
        renewed = book.identity is not None and take_identity(place, book.identity)
        number = _replace_crl(place, book.crl)
        left = set(book.cut)
        for transport in TRANSPORTS:
            left |= _replace_files(place.addresses(transport), book.laptops[transport])
        ended = end_sessions({place.socket(each): book.laptops[each].keys() for each in TRANSPORTS}, left)
        for transport in TRANSPORTS if renewed else ():
            ask(place.socket(transport), "signal SIGHUP")
    return {"number": number, "cut": ended, "renewed": renewed}


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    handle = os.open(place.settings, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace_crl(place: Place, text: str) -> int:
    fresh = place.settings / ".crl.new"
    try:
        _fill(fresh, text)
        number = _checked(place, fresh)
        if place.crl.exists():
            # OpenVPN reads it anew when its size or its second has changed.
            later = max(int(time.time()), int(place.crl.stat().st_mtime) + 1)
            os.utime(fresh, (later, later))
        fresh.replace(place.crl)
    finally:
        fresh.unlink(missing_ok=True)
    return number


def _checked(place: Place, fresh: Path) -> int:
    check_issuer(fresh, place.trusted)
    number, end = crl_number(fresh), crl_end(fresh)
    if end <= time.time():
        raise Refusal(f"the list of revoked certificates ended on {time.strftime('%d %B %Y', time.gmtime(end))}")
    if place.crl.exists() and number < crl_number(place.crl):
        raise Refusal(f"list {number} of revoked certificates is older than the one in force, {crl_number(place.crl)}")
    return number


def _replace_files(folder: Path, files: Mapping[str, str]) -> set[str]:
    """Make a folder hold these files alone, and return the names of those that went or became another."""
    folder.mkdir(exist_ok=True, mode=0o755)
    old = {each.name: each.read_text() for each in folder.iterdir()}
    for name, text in files.items():
        if old.get(name) != text:
            fresh = folder / f".{name}"
            _fill(fresh, text)
            fresh.replace(folder / name)
    for name in old.keys() - files.keys():
        (folder / name).unlink()
    return {name for name, text in old.items() if _NAME.fullmatch(name) and files.get(name) != text}


def _fill(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)
    with path.open() as stream:
        os.fsync(stream.fileno())
