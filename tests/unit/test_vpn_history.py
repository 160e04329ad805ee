"""The keeper of a gateway takes no book that is older than the one in force."""

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.laptop_keys import LabKeys
from tests.support.needs import need_program
from vpn.keeper.book import Book, take
from vpn.keeper.place import TRANSPORTS, Place
from vpn.keeper.trouble import Refusal
from vpn.subject import Use

FILE = "ifconfig-push 10.121.0.2 255.255.254.0\n"


@pytest.fixture
def keys() -> LabKeys:
    """Return an authority."""
    return LabKeys()


@pytest.fixture
def place(tmp_path: Path, keys: LabKeys) -> Place:
    """Return a gateway that trusts the authority, and whose daemons do not run."""
    need_program("openssl")
    (tmp_path / "ca.crt").write_text(keys.trusted)
    return Place(tmp_path, tmp_path / "nowhere", pwd.getpwuid(os.getuid()).pw_name, tmp_path / "memory")


def _book(crl: str, version: int = 1, names: tuple[str, ...] = ("ada.laptop",)) -> Book:
    return Book(crl, {each: dict.fromkeys(names, FILE) for each in TRANSPORTS}, (), version=version)


def _state(place: Place) -> dict[str, str]:
    return {str(each): each.read_text() for each in sorted(place.settings.rglob("*")) if each.is_file()}


def test_a_book_of_the_same_or_a_higher_version_is_taken(place: Place, keys: LabKeys) -> None:
    """The gateway remembers the version."""
    crl = keys.revocations()

    for version in (1, 1, 4):
        take(place, _book(crl, version))

    assert place.version.read_text() == "4\n"


def test_a_book_of_a_lower_version_changes_nothing(place: Place, keys: LabKeys) -> None:
    """A laptop that the newer book lets in stays in, also where the older book brings a newer list."""
    take(place, _book(keys.revocations(), 2))
    before = _state(place)

    with pytest.raises(Refusal, match=r"version 1\) is older than the one in force \(version 2\)"):
        take(place, _book(keys.revocations(), 1, names=()))

    assert _state(place) == before


def test_two_different_lists_of_one_number_are_refused(place: Place, keys: LabKeys) -> None:
    """The second might let in a laptop that the first revoked. The same list again is taken."""
    other = LabKeys(keys.issuer)
    first, second = keys.revocations(), other.revocations()
    take(place, _book(first))

    with pytest.raises(Refusal, match="have the number 1"):
        take(place, _book(second))

    take(place, _book(first))
    assert place.crl.read_text() == first


def test_an_older_list_is_refused_whatever_the_version(place: Place, keys: LabKeys) -> None:
    """It would let in a laptop that was revoked."""
    older = keys.revocations()
    take(place, _book(keys.revocations(), 1))

    with pytest.raises(Refusal, match="list 1 of revoked certificates is older than the one in force, 2"):
        take(place, _book(older, 2))


def test_the_versions_of_a_new_authority_start_again(place: Place, keys: LabKeys) -> None:
    """It comes with its own keys for the gateway; its lists are numbered from 1, too."""
    for _ in range(3):
        last = keys.revocations()
    take(place, _book(last, 2))
    fresh = LabKeys()
    certificate, key = fresh.pair("gateway.cellar.lab.internal", Use.SERVER)
    names = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
    identity = dict(zip(names, (fresh.trusted, certificate, key, fresh.hidden), strict=True))

    take(place, replace(_book(fresh.revocations(), 1), identity=identity))

    assert place.version.read_text() == "1\n"
