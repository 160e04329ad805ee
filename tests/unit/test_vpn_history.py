"""The keeper of a gateway takes no book that is older than the one in force, or was signed apart from it."""

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

ONE, TWO, THREE, APART = "1" * 16, "2" * 16, "3" * 16, "a" * 16
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


def _book(crl: str, *marks: str, names: tuple[str, ...] = ("ada.laptop",)) -> Book:
    return Book(crl, {each: dict.fromkeys(names, FILE) for each in TRANSPORTS}, (), marks=marks)


def _state(place: Place) -> dict[str, str]:
    return {str(each): each.read_text() for each in sorted(place.settings.rglob("*")) if each.is_file()}


def test_a_book_that_goes_on_where_the_last_ended_is_taken(place: Place, keys: LabKeys) -> None:
    """The same once more, one with entries more, and one that joins what was signed apart."""
    crl = keys.revocations()

    for marks in ((ONE,), (ONE,), (ONE, TWO), (ONE, TWO, APART, THREE)):
        take(place, _book(crl, *marks))

    assert place.history.read_text().split() == [ONE, TWO, APART, THREE]


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ((ONE,), "somebody has signed since"),
        ((), "somebody has signed since"),
        ((ONE, APART), "two have signed apart"),
        ((APART,), "of another authority"),
    ],
    ids=["older", "unmarked", "apart", "another-authority"],
)
def test_any_other_changes_nothing(marks: tuple[str, ...], told: str, place: Place, keys: LabKeys) -> None:
    """A laptop that the newer lets in stays in, whatever list the other brings; the message says what to do."""
    take(place, _book(keys.revocations(), ONE, TWO))
    before = _state(place)

    with pytest.raises(Refusal, match=f"{told}.*`bedplate vpn sync`"):
        take(place, _book(keys.revocations(), *marks, names=()))

    assert _state(place) == before


def test_two_lists_of_one_number_are_told(place: Place, keys: LabKeys) -> None:
    """Signed apart, the second is refused: it might let in whom the first has taken back. The same again is not."""
    apart = LabKeys(keys.issuer)
    first, second = keys.revocations(), apart.revocations()
    take(place, _book(first))

    with pytest.raises(Refusal, match=r"have the number 1, .*`bedplate vpn join`"):
        take(place, _book(second))

    take(place, _book(first))
    assert place.crl.read_text() == first


def test_an_older_list_is_refused_whatever_the_journal_says(place: Place, keys: LabKeys) -> None:
    """Nobody who was taken back comes in again by it."""
    older = keys.revocations()
    take(place, _book(keys.revocations(), ONE))

    with pytest.raises(Refusal, match="list 1 of revoked certificates is older than the one in force, 2"):
        take(place, _book(older, ONE, TWO))


def test_an_authority_made_anew_begins_anew(place: Place, keys: LabKeys) -> None:
    """It comes with its own keys for the gateway; its first list follows none of the old ones."""
    for _ in range(3):
        last = keys.revocations()
    take(place, _book(last, ONE, TWO))
    fresh = LabKeys()
    certificate, key = fresh.pair("gateway.cellar.lab.internal", Use.SERVER)
    names = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
    identity = dict(zip(names, (fresh.trusted, certificate, key, fresh.hidden), strict=True))

    take(place, replace(_book(fresh.revocations(), APART), identity=identity))

    assert place.history.read_text().split() == [APART]
