"""Two journals that were signed apart: each told from an older one, and joined without losing a word of either."""

import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.errors import InputError, MachineError
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from vpn.certificate import new_key
from vpn.entry import Issued, Revoked
from vpn.joining import Gained, join, read_other
from vpn.journal import DamagedError, new_journal, parse_journal
from vpn.lists import deployable_lists
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason, number_of, read_lists
from vpn.signing import renew, revoke
from vpn.subject import laptop

HOUR = timedelta(hours=1)


@pytest.fixture
def ours(tmp_path: Path) -> PkiFolder:
    """Return a folder in which somebody was added."""
    folder = begun_in(tmp_path)
    added(folder, "ada")
    return folder


@pytest.fixture
def theirs(ours: PkiFolder, tmp_path: Path) -> PkiFolder:
    """Return a copy of it, as another clone has one."""
    return PkiFolder(Path(shutil.copytree(ours.path, tmp_path / "clone" / "fleet.pki")))


def _joined(ours: PkiFolder, theirs: PkiFolder) -> Gained:
    pki = pki_in(ours)
    return join(pki, read_other(theirs.journal.read_text(), pki), NOW + HOUR, unasked)


def _gone(folder: PkiFolder, user: str) -> None:
    revoke(pki_in(folder), [f"{user}.laptop"], Reason.LOST, NOW, unasked)


def _counting(folder: PkiFolder) -> set[str]:
    return {each.name for each in pki_in(folder).roll.valid(NOW + HOUR)}


def _listed(folder: PkiFolder) -> set[int]:
    return {each.serial_number for each in read_lists(folder.lists.read_text())[0]}


def test_what_either_issued_counts_and_no_address_is_given_twice(ours: PkiFolder, theirs: PkiFolder) -> None:
    """Both gave the next number; the one that is taken in gets another, and is told."""
    added(ours, "eve")
    added(theirs, "grace", "bob")

    gained = _joined(ours, theirs)

    assert _counting(ours) == {"ada.laptop", "eve.laptop", "grace.laptop", "bob.laptop"}
    assert max(Counter(each.slot for each in pki_in(ours).roll.holders().values()).values()) == 1
    assert [each.name for each in gained.issued] == ["grace.laptop", "bob.laptop"]
    assert "grace.laptop" in gained.moved


def test_what_either_revoked_is_on_the_next_list(ours: PkiFolder, theirs: PkiFolder) -> None:
    """Its number is above both, so that every gateway takes it, whichever it had."""
    added(ours, "eve")
    _gone(ours, "eve")
    _gone(theirs, "ada")
    added(theirs, "bob")
    _gone(theirs, "bob")

    gained = _joined(ours, theirs)

    assert {each.name for each in gained.revoked} == {"ada.laptop", "bob.laptop"}
    assert _counting(ours) == set()
    assert len(_listed(ours)) == 3
    assert number_of(read_lists(deployable_lists(pki_in(ours), NOW + HOUR))[0]) == 4


@pytest.mark.parametrize("here", [True, False], ids=["revoked-here", "revoked-there"])
def test_a_name_that_one_revoked_and_the_other_renewed_is_out(
    ours: PkiFolder, theirs: PkiFolder, *, here: bool
) -> None:
    """Who renewed it did not know that it was lost."""
    revoking, renewing = (ours, theirs) if here else (theirs, ours)
    _gone(revoking, "ada")
    late = renew(pki_in(renewing), [laptop("ada")], NOW, unasked)[0]

    gained = _joined(ours, theirs)

    assert late in gained.revoked
    assert late.serial in _listed(ours)
    assert _counting(ours) == set()


def test_who_was_revoked_and_added_again_on_one_side_stays(ours: PkiFolder, theirs: PkiFolder) -> None:
    """Whoever gave the new one knew of the loss."""
    _gone(ours, "ada")
    fresh = added(ours, "ada")[0]
    added(theirs, "grace")

    _joined(ours, theirs)

    assert _counting(ours) == {"ada.laptop", "grace.laptop"}
    assert fresh.serial not in _listed(ours)


def test_the_joined_goes_on_where_either_ended(ours: PkiFolder, theirs: PkiFolder) -> None:
    """By that a gateway that took the one or the other knows it; before, neither went on where the other ended."""
    added(ours, "eve")
    added(theirs, "grace")
    ends = [pki_in(each).journal.marks[-1] for each in (ours, theirs)]

    assert ends[0] not in pki_in(theirs).journal.marks
    _joined(ours, theirs)

    assert set(ends) < set(pki_in(ours).journal.marks)
    assert pki_in(ours).journal.marks[-1] not in ends


def test_what_holds_all_of_the_other_is_not_joined(ours: PkiFolder, theirs: PkiFolder) -> None:
    """The older takes over the newer as it is; the newer has nothing to gain. A second time there is nothing left."""
    added(theirs, "grace")

    with pytest.raises(InputError, match="holds all of the one here, and more") as older:
        _joined(ours, theirs)
    with pytest.raises(InputError, match="the journal here holds all of the other"):
        _joined(theirs, ours)
    added(ours, "eve")
    _joined(ours, theirs)
    with pytest.raises(InputError, match="the journal here holds all of the other"):
        _joined(ours, theirs)

    assert "git pull" in older.value.fix


def test_three_clones_are_joined_one_after_the_other(ours: PkiFolder, theirs: PkiFolder, tmp_path: Path) -> None:
    """What one had joined before is known to whoever joins it: no certificate is told twice."""
    third = PkiFolder(Path(shutil.copytree(ours.path, tmp_path / "third" / "fleet.pki")))
    for folder, user in ((ours, "eve"), (theirs, "grace"), (third, "bob")):
        added(folder, user)

    _joined(theirs, third)
    _joined(ours, theirs)

    assert _counting(ours) == {"ada.laptop", "eve.laptop", "grace.laptop", "bob.laptop"}
    assert pki_in(third).journal.marks[-1] in pki_in(ours).journal.marks


def test_a_journal_of_another_authority_or_a_damaged_one_is_not_joined(ours: PkiFolder, tmp_path: Path) -> None:
    """Nothing is taken from it; the message says which file is meant."""
    (tmp_path / "other").mkdir()
    other, before = begun_in(tmp_path / "other"), ours.journal.read_bytes()

    for text in (other.journal.read_text(), ours.journal.read_text()[:-9], ""):
        with pytest.raises(InputError, match="the other journal is refused") as refused:
            read_other(text, pki_in(ours))

    assert "as it was committed" in refused.value.fix
    assert ours.journal.read_bytes() == before


def test_a_clock_behind_the_other_journal_joins_nothing(ours: PkiFolder, theirs: PkiFolder) -> None:
    """What it signed would begin before what was signed there."""
    added(ours, "eve")
    added(theirs, "grace", now=NOW + 2 * HOUR)

    with pytest.raises(MachineError, match="clock"):
        _joined(ours, theirs)


def test_no_serial_is_told_twice_or_taken_back_before_it_was_given(ours: PkiFolder) -> None:
    """Whatever its seal says: the second would hide the first from whoever revokes it."""
    begun = pki_in(ours).journal.begun
    one = next(each for each in pki_in(ours).journal.entries if isinstance(each, Issued))
    key = new_key()

    for entries, message in (((one, one), "given before"), ((Revoked(NOW, 7, Reason.LOST),), "never issued")):
        text = new_journal(begun).with_entries(entries).text(key)
        with pytest.raises(DamagedError, match=message):
            parse_journal(text, key.public_key())
