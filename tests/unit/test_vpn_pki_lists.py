"""What is revoked, and the lists that say so: signed, renewed, and not deployed where they would do harm."""

from datetime import timedelta

import pytest

from bedplate.errors import InputError
from tests.support.authority import NOW, added, pki_in, unasked
from vpn.lists import current_list, deployable_lists
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason, number_of, read_lists
from vpn.signing import relist, renew, revoke
from vpn.subject import laptop

DAY = timedelta(days=1)


def _revoked(folder: PkiFolder) -> set[int]:
    return {row.serial_number for row in read_lists(folder.lists.read_text())[0]}


def test_revoking_takes_every_certificate_of_a_name(folder: PkiFolder) -> None:
    """The renewed one and the one before; others are left alone."""
    mine = [*added(folder, "ada"), *renew(pki_in(folder), [laptop("ada")], NOW, unasked)]
    added(folder, "grace")

    gone = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert list(gone) == mine
    assert _revoked(folder) == {each.serial for each in mine}
    assert set(pki_in(folder).roll.holders()) == {"grace.laptop"}


def test_a_list_holds_what_has_ended_until_a_regular_one_has_told_it(folder: PkiFolder) -> None:
    """By RFC 5280 section 3.3 it goes after one regular list that was signed beyond its end, and not before."""
    added(folder, "ada", "grace")
    ada = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW + 80 * DAY, unasked)[0]

    relist(pki_in(folder), NOW + 126 * DAY, unasked)
    assert _revoked(folder) == {ada.serial}
    relist(pki_in(folder), NOW + 172 * DAY, unasked)

    assert _revoked(folder) == set()


def test_a_list_that_a_revocation_signed_is_a_regular_one_where_one_was_due(folder: PkiFolder) -> None:
    """Somebody goes every twenty days: who ended on day 90 is on the list of day 120, which was due, then on none."""
    ada = added(folder, "ada")[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    told = {}
    for days in range(20, 160, 20):
        added(folder, f"u{days}", now=NOW + days * DAY)
        revoke(pki_in(folder), [f"u{days}.laptop"], Reason.LOST, NOW + days * DAY, unasked)
        told[days] = ada.serial in _revoked(folder)

    assert told == {20: True, 40: True, 60: True, 80: True, 100: True, 120: True, 140: False}


@pytest.mark.parametrize(("days", "signs"), [(0, False), (44, False), (46, True), (120, True)])
def test_a_list_is_renewed_at_half_its_life(days: int, folder: PkiFolder, *, signs: bool) -> None:
    """Its number grows, so that who has the newer one keeps it."""
    later = NOW + days * DAY

    assert relist(pki_in(folder), later, unasked) is signs

    assert number_of(read_lists(folder.lists.read_text())[0]) == (2 if signs else 1)
    assert current_list(pki_in(folder), later) is not None


def test_whatever_is_signed_renews_an_old_list(folder: PkiFolder) -> None:
    """Whoever adds somebody now and then never has an old one."""
    added(folder, "ada", now=NOW + 60 * DAY)

    assert current_list(pki_in(folder), NOW + 60 * DAY) is not None


def test_a_list_behind_its_journal_is_not_deployed(folder: PkiFolder) -> None:
    """A run killed between the two leaves it so: it would let the revoked in. The next one mends it."""
    added(folder, "ada")
    older = folder.lists.read_text()
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    folder.lists.write_text(older)

    with pytest.raises(InputError, match="not the last list"):
        deployable_lists(pki_in(folder), NOW)

    assert relist(pki_in(folder), NOW, unasked)
    assert len(read_lists(deployable_lists(pki_in(folder), NOW))[0]) == 1


@pytest.mark.parametrize(("days", "message"), [(91, "ended on 2027-02-19"), (88, "in 2 days")])
def test_a_list_near_its_end_is_not_deployed(days: int, message: str, folder: PkiFolder) -> None:
    """It would lock everybody out."""
    with pytest.raises(InputError, match=message):
        deployable_lists(pki_in(folder), NOW + days * DAY)

    assert deployable_lists(pki_in(folder), NOW + 86 * DAY)
