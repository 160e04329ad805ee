"""What is issued and renewed, under which serial and number, and who may not."""

from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.hold import held
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from vpn.pki_folder import NoAuthority, PkiFolder
from vpn.revocation import Reason, read_lists
from vpn.signing import add, renew, revoke
from vpn.subject import laptop

DAY = timedelta(days=1)


def _revoked(folder: PkiFolder) -> set[int]:
    return {row.serial_number for row in read_lists(folder.lists.read_text())[0]}


def test_an_authority_is_begun_once(folder: PkiFolder) -> None:
    """A second one would end every profile."""
    before = folder.authority.read_bytes()

    with pytest.raises(InputError, match="authority already"):
        begun_in(folder.path.parent)

    assert folder.authority.read_bytes() == before


def test_a_fleet_without_an_authority_is_told_how_to_begin(tmp_path: Path) -> None:
    """Commands that need one say which makes it."""
    with pytest.raises(NoAuthority) as refused:
        pki_in(PkiFolder(tmp_path / "fleet.pki"))

    assert "vpn init" in refused.value.fix


def test_serials_grow_and_are_never_given_twice(folder: PkiFolder) -> None:
    """Not to a name that was revoked and is used again either."""
    serials = [each.serial for each in added(folder, "ada", "grace")]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LEFT, NOW, unasked)
    serials += [each.serial for each in added(folder, "ada")]
    serials += [each.serial for each in renew(pki_in(folder), [laptop("grace")], NOW, unasked)]

    assert sorted(set(serials)) == serials
    assert _revoked(folder) == {serials[0]}


def test_a_journal_that_was_lost_repeats_no_serial(tmp_path: Path) -> None:
    """Two authorities that begin alike give different serials."""
    one, other = (added(begun_in(_made(tmp_path / name)), "ada")[0].serial for name in ("a", "b"))

    assert one != other


def test_a_laptop_keeps_its_number(folder: PkiFolder) -> None:
    """Its address follows from it: renewed it stays, and a number is free again once its laptop was revoked."""
    added(folder, "ada", "grace")
    renewed = renew(pki_in(folder), [laptop("grace")], NOW, unasked)[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    later = added(folder, "eve", "mallory")

    assert renewed.slot == 1
    assert [each.slot for each in later] == [0, 2]


def test_an_ended_certificate_holds_no_number(folder: PkiFolder) -> None:
    """Or a pool fills with laptops that nobody has any more; who comes back has the old number where it is free."""
    added(folder, "ada", "grace")
    much_later = NOW + timedelta(days=200)

    eve = add(pki_in(folder), [laptop("eve")], much_later, unasked)[0]
    back = add(pki_in(folder), [laptop("grace"), laptop("ada")], much_later, unasked)

    assert (eve.slot, [each.slot for each in back]) == (0, [1, 2])


def test_a_second_certificate_for_the_same_laptop_is_refused(folder: PkiFolder) -> None:
    """The message says until when the first one lasts, and what to do for another machine."""
    added(folder, "ada")

    with pytest.raises(InputError, match=r"ada\.laptop has a certificate until 2027-02-19") as refused:
        added(folder, "ada")

    assert "--device" in refused.value.fix


def test_a_certificate_whose_key_was_never_written_is_issued_anew(folder: PkiFolder) -> None:
    """As after a run that was killed: nobody can hold it."""
    first = added(folder, "ada")[0]
    (folder.keys / "ada.laptop.pem").unlink()

    second = added(folder, "ada")[0]

    assert second.serial != first.serial
    assert second.slot == first.slot


def test_an_ended_certificate_does_not_stand_in_the_way(folder: PkiFolder) -> None:
    """Who comes back after months is added again."""
    added(folder, "ada")

    assert added(folder, "ada", now=NOW + 91 * DAY)


def test_renewing_takes_a_new_key_and_leaves_the_old_valid(folder: PkiFolder) -> None:
    """A person has time to change the profile."""
    old = added(folder, "ada")[0]
    new = renew(pki_in(folder), [laptop("ada")], NOW + 60 * DAY, unasked)[0]

    assert new.key != old.key
    assert [each.serial for each in pki_in(folder).roll.valid(NOW + 61 * DAY)] == [old.serial, new.serial]
    assert _revoked(folder) == set()


def test_who_was_never_added_or_was_revoked_is_not_renewed(folder: PkiFolder) -> None:
    """Renewing never gives what was not given before."""
    added(folder, "ada")
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    for user in ("ada", "grace"):
        with pytest.raises(InputError, match="no certificate to renew"):
            renew(pki_in(folder), [laptop(user)], NOW, unasked)


def test_two_operators_at_once(folder: PkiFolder) -> None:
    """One wins; the other is told who, and has changed nothing."""
    pki, before = pki_in(folder), folder.journal.read_bytes()

    with held(folder.journal), pytest.raises(HeldError, match="process"):
        add(pki, [laptop("ada")], NOW, unasked)

    assert folder.journal.read_bytes() == before


def test_what_another_has_signed_since_is_kept(folder: PkiFolder) -> None:
    """Each change begins from what the files say under the hold."""
    stale = pki_in(folder)
    added(folder, "ada")

    add(stale, [laptop("grace")], NOW, unasked)

    assert set(pki_in(folder).roll.holders()) == {"ada.laptop", "grace.laptop"}


def test_a_clock_behind_the_journal_signs_nothing(folder: PkiFolder) -> None:
    """What it signs would begin before what was signed last, and end too early."""
    added(folder, "ada")

    with pytest.raises(MachineError, match="clock"):
        added(folder, "grace", now=NOW - timedelta(seconds=1))

    assert added(folder, "grace", now=NOW)


def _made(path: Path) -> Path:
    path.mkdir()
    return path
