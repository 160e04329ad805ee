"""The book of a gateway: who is let in, under which address, and whose certificates were taken back.

It is sent whole each time, so that a gateway that missed one has everything after the next.
"""

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .certificate import (
    NAMES,
    check_identity,
    fresh_file,
    fresh_identity,
    fresh_list,
    list_in_force,
    put_identity,
    put_list,
)
from .place import TRANSPORTS, Place, Refusal, Unfinished, put
from .sessions import ask, end_sessions


@dataclass(frozen=True)
class Owed:
    """Laptops whose sessions are to end, and transports whose daemons are to start anew, by new keys."""

    cut: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()

    def __or__(self, other: "Owed") -> "Owed":
        """Return what both are owed."""
        return Owed(self.cut | other.cut, self.anew | other.anew)

    def document(self) -> dict[str, list[str]]:
        """Return it as JSON's own types."""
        return {"cut": sorted(self.cut), "anew": sorted(self.anew)}


NOTHING = Owed()


def read_owed(file: Path) -> Owed:
    """Return what is still owed; a spoilt note tells nothing."""
    try:
        told = json.loads(file.read_text())
        return Owed(frozenset(map(str, told["cut"])), frozenset(map(str, told["anew"])))
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING


def note(file: Path, owed: Owed) -> None:
    """Put a note of it at a path whole; none where nothing is owed."""
    if owed == NOTHING:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    put(file, json.dumps(owed.document()))


_DONE = "SUCCESS:"


def settle(place: Place, owed: Owed, let_in: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Do what is owed, and return how many sessions ended by name; `let_in` holds whom each transport lets in.

    Raises Unfinished for a daemon that did not answer, when all others were asked; what it is owed stays noted.
    """
    ended: dict[str, int] = {}
    left, silent = owed, []
    try:
        ended = end_sessions({place.socket(each): names for each, names in let_in.items()}, owed.cut)
        left = Owed(anew=left.anew)
    except Unfinished as error:
        silent.append(error)
    for transport in sorted(owed.anew):
        try:
            _start_anew(place.socket(transport))
            left = Owed(left.cut, left.anew - {transport})
        except Unfinished as error:
            silent.append(error)
    note(place.owed, left)
    if silent:
        raise silent[0]
    return ended


def _start_anew(socket: Path) -> None:
    """Have a daemon read its settings anew; one that does not run reads them when it starts."""
    told = ask(socket, "signal SIGHUP")
    if told is not None and not told[-1].startswith(_DONE):
        raise Unfinished(f"{socket} does not start anew: {told[-1][:160]}")


# A file called DEFAULT would let everybody in.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}", re.ASCII)
_SERIAL = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
_ADDRESS = re.compile(r"ifconfig-push [0-9.]+ [0-9.]+\n", re.ASCII)


@dataclass(frozen=True)
class Book:
    """What the operator's machine sends: `laptops` holds the file of each laptop by transport and name.

    `revoked` holds the serials, in hexadecimal, that count no more, with the name of the laptop each was given to.
    `identity` holds the gateway's certificate and keys, where they are sent along. `version` grows with each change.
    """

    crl: str
    laptops: Mapping[str, Mapping[str, str]]
    cut: tuple[str, ...]
    identity: Mapping[str, str] | None = None
    revoked: Mapping[str, str] = field(default_factory=dict)
    version: int = 0


def parse_book(text: str) -> Book:
    """Return the book that a text holds; raises Refusal for anything else."""
    try:
        told = json.loads(text)
        laptops = {each: told["laptops"][each] for each in TRANSPORTS}
        identity = told.get("identity") and {name: str(told["identity"][name]) for name in NAMES}
        version = int(told["version"])
        book = Book(told["crl"], laptops, tuple(told["cut"]), identity, told.get("revoked", {}), version)
        names = {*book.cut, *book.revoked.values(), *(name for files in book.laptops.values() for name in files)}
        files = [file for each in book.laptops.values() for file in each.values()]
        judged = ((_NAME, names), (_ADDRESS, files), (_SERIAL, book.revoked))
        whole = all(pattern.fullmatch(each) for pattern, texts in judged for each in texts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refusal(f"that is no book of laptops: {error!r}") from None
    if not whole:
        raise Refusal("that is no book of laptops: it holds a name or an address that bedplate never writes")
    return book


def take(place: Place, book: Book) -> dict[str, object]:
    """Put the book in force, end the sessions of whoever it lets in no more, and return what was done.

    The list comes first and the sessions last: whoever is cut off finds the door shut. Raises Refusal, before
    anything is changed, for a book that is older than the one in force, for keys that do not agree, and for a list that
    is over or has not begun, older than the one in force, or of another authority. A new certificate is taken up by
    daemons that start anew, which laptops notice for seconds.
    """
    with _alone(place):
        _check_version(place, book)
        return _taken(place, book)


def _taken(place: Place, book: Book) -> dict[str, object]:
    with fresh_identity(place, book.identity) as identity:
        trusted = (identity or place.settings) / place.trusted.name
        before = list_in_force(place, trusted)
        with fresh_list(place, book.crl, trusted, before) as revoked:
            if identity:
                check_identity(fresh_file(place), *(identity / name for name in NAMES[:3]))
            ending = _ending(place, book, revoked.serials - before.serials)
            owed = read_owed(place.owed) | Owed(ending, frozenset(TRANSPORTS if identity else ()))
            note(place.owed, owed)
            if identity:
                put_identity(place, identity)
            put_list(place)
        put(place.version, f"{book.version}\n")
        for transport in TRANSPORTS:
            _replace_files(place.addresses(transport), book.laptops[transport])
        ended = settle(place, owed, {each: book.laptops[each].keys() for each in TRANSPORTS})
    return {"number": revoked.number, "cut": ended, "renewed": identity is not None}


def _check_version(place: Place, book: Book) -> None:
    """Refuse a book with a lower version than the one in force; the versions of a new authority start again."""
    known = int(place.version.read_text()) if place.version.exists() else 0
    if book.version < known and not _has_new_authority(place, book):
        raise Refusal(
            f"the access list that was sent (version {book.version}) is older than the one in force (version {known})."
            " Get the newest fleet.pki (git pull), then `bedplate vpn sync`"
        )


def _has_new_authority(place: Place, book: Book) -> bool:
    return book.identity is not None and book.identity[place.trusted.name] != place.trusted.read_text()


def _ending(place: Place, book: Book, new: AbstractSet[int]) -> frozenset[str]:
    """Return whose sessions are to end: who is named, goes, or gets another address, and whose certificate was revoked.

    A name may have another certificate by now. No daemon tells which one a session is by: a serial that the new list
    names, and the one in force does not, ends whatever sessions its name has, once; `new` holds those.
    """
    revoked = {name for serial, name in book.revoked.items() if int(serial, 16) in new}
    moved = {
        name
        for each in TRANSPORTS
        for name, text in _files(place.addresses(each)).items()
        if book.laptops[each].get(name) != text
    }
    return frozenset({*book.cut, *revoked, *filter(_NAME.fullmatch, moved)})


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    handle = os.open(place.settings, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace_files(folder: Path, files: Mapping[str, str]) -> None:
    """Make a folder hold these files alone."""
    folder.mkdir(exist_ok=True, mode=0o755)
    old = _files(folder)
    for name, text in files.items():
        if old.get(name) != text:
            put(folder / name, text)
    for name in old.keys() - files.keys():
        (folder / name).unlink()


def _files(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir()} if folder.is_dir() else {}
