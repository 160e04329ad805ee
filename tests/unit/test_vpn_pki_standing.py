"""How the VPN's keys stand, and what they lack beside the fleet file."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from vpn.due import due
from vpn.judgement import Level
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason
from vpn.signing import add, relist, renew, revoke
from vpn.standing import standing
from vpn.subject import gateway, laptop
from vpn.told import book_of

DAY = timedelta(days=1)
PEOPLE = ("ada", "grace")
CELLAR, ATTIC = gateway("cellar", "lab.internal"), gateway("attic", "lab.internal")


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return a folder with two people's laptops and one gateway."""
    begun = begun_in(tmp_path)
    added(begun, *PEOPLE)
    add(pki_in(begun), [CELLAR], NOW, unasked)
    return begun


@pytest.mark.parametrize(
    ("days", "note", "left"), [(0, "", 90), (75, "", 15), (76, "ends soon", 14), (89, "ends soon", 1), (90, "ended", 0)]
)
def test_a_certificate_near_its_end_is_marked(days: int, note: str, left: int, folder: PkiFolder) -> None:
    """From two weeks on; an ended one stays in the list until it is renewed."""
    found = standing(pki_in(folder), PEOPLE, NOW + days * DAY).holders

    assert {(each.days, each.note) for each in found} == {(left, note)}


def test_who_left_is_marked_and_due(folder: PkiFolder) -> None:
    """A laptop of somebody who is in the file is neither, and no gateway is taken for a person's."""
    pki = pki_in(folder)
    marked = {each.name for each in standing(pki, ("ada",), NOW).holders if "has left" in each.note}

    assert marked == {"grace.laptop"}
    assert due(pki.roll, ("ada",), [CELLAR], (), NOW).left == ("grace.laptop",)
    assert due(pki.roll, PEOPLE, [CELLAR], (), NOW).left == ()


def test_an_ended_certificate_is_no_matter_for_revocation(folder: PkiFolder) -> None:
    """Nobody is due who could not come in anyway."""
    assert due(pki_in(folder).roll, (), [], (), NOW + 91 * DAY) == due(
        pki_in(folder).roll, PEOPLE, [], (), NOW + 91 * DAY
    )


@pytest.mark.parametrize(
    ("days", "lacking"), [(0, [ATTIC]), (44, [ATTIC]), (46, [CELLAR, ATTIC]), (91, [CELLAR, ATTIC])]
)
def test_a_gateway_gets_a_certificate_in_time(days: int, lacking: list[object], folder: PkiFolder) -> None:
    """A new one at once, one that stands at the half of its certificate's life."""
    assert list(due(pki_in(folder).roll, PEOPLE, [CELLAR, ATTIC], (), NOW + days * DAY).lacking) == lacking


def test_a_gateway_whose_key_is_lost_gets_another(folder: PkiFolder) -> None:
    """As after a run that was killed between the journal and the key."""
    roll = pki_in(folder).roll

    assert due(roll, PEOPLE, [CELLAR], {CELLAR.name}, NOW).lacking == (CELLAR,)
    assert due(roll, PEOPLE, [CELLAR], {"ada.laptop"}, NOW).lacking == ()


def test_a_gateway_that_is_gone_is_due(folder: PkiFolder) -> None:
    """Whoever has its disk could pose as a gateway."""
    assert due(pki_in(folder).roll, PEOPLE, [ATTIC], (), NOW).gone == (CELLAR.name,)


def test_a_renewed_laptop_is_listed_once(folder: PkiFolder) -> None:
    """With its newest certificate."""
    newest = renew(pki_in(folder), [laptop("ada")], NOW + DAY, unasked)[0]
    found = [each for each in standing(pki_in(folder), PEOPLE, NOW + DAY).holders if each.name == "ada.laptop"]

    assert [each.serial for each in found] == [newest.serial]


def test_the_list_and_its_revocations_are_told(folder: PkiFolder) -> None:
    """Its number grows with each; what it revokes is counted."""
    revoke(pki_in(folder), ["grace.laptop"], Reason.LOST, NOW, unasked)
    told = standing(pki_in(folder), PEOPLE, NOW)

    assert (told.number, told.revoked, told.until) == (2, 1, NOW + 90 * DAY)
    assert not told.faults


@pytest.mark.parametrize(("days", "level"), [(77, Level.WARNING), (88, Level.ERROR), (91, Level.ERROR)])
def test_a_list_near_its_end_is_told(days: int, level: Level, folder: PkiFolder) -> None:
    """With the command that renews it, after which nothing is left to say."""
    later = NOW + days * DAY
    (fault,) = standing(pki_in(folder), PEOPLE, later).faults

    assert fault.level is level
    assert "`bedplate vpn sync`" in fault.message
    relist(pki_in(folder), later, unasked)
    assert standing(pki_in(folder), PEOPLE, later).faults == ()


def test_an_authority_in_its_last_year_is_told(folder: PkiFolder) -> None:
    """Every profile ends with it."""
    end = pki_in(folder).authority.certificate.not_valid_after_utc
    late = end - 300 * DAY
    relist(pki_in(folder), late, unasked)

    assert [fault.level for fault in standing(pki_in(folder), PEOPLE, late).faults] == [Level.WARNING]


def test_gateways_hear_what_a_laptop_that_stays_had_before(folder: PkiFolder) -> None:
    """A session may be by a certificate that was taken back; who is let in no more is cut off without it."""
    before = pki_in(folder).roll.holders()
    revoke(pki_in(folder), ("ada.laptop", "grace.laptop"), Reason.LOST, NOW, unasked)
    add(pki_in(folder), [laptop("ada")], NOW, unasked)

    book = book_of(pki_in(folder), NOW)

    assert [each.name for each in book.laptops] == ["ada.laptop"]
    assert book.revoked == {before["ada.laptop"].serial: "ada.laptop"}
