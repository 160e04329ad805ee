"""The journal of the VPN's keys: damaged ones are refused, kept, and the way back is told."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.errors import InputError
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from vpn.certificate import new_key
from vpn.entry import Begun, Issued, Listed, Revoked, entry_text, parse_entry
from vpn.journal import DamagedError, new_journal, parse_journal
from vpn.key_store import FolderKeys
from vpn.pki import open_pki
from vpn.pki_folder import DamagedJournal, PkiFolder
from vpn.revocation import Reason
from vpn.signing import revoke
from vpn.subject import Use

ENTRIES = (
    Begun(NOW, "lab", "ab" * 32, "folder"),
    Issued(NOW, 2**70, "ada.laptop", Use.CLIENT, NOW + timedelta(days=90), "cd" * 32, 0),
    Issued(NOW, 2**71, "gateway.cellar.lab.internal", Use.SERVER, NOW + timedelta(days=90), "ef" * 32),
    Revoked(NOW, 2**70, Reason.LOST),
    Listed(NOW, 2, NOW + timedelta(days=90)),
)
KEY = new_key()
TEXT = new_journal(ENTRIES[0]).with_entries(ENTRIES[1:]).text(KEY)


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return a folder whose journal tells of two people, one of them revoked."""
    begun = begun_in(tmp_path)
    added(begun, "ada", "grace")
    revoke(pki_in(begun), ["grace.laptop"], Reason.LOST, NOW, unasked)
    return begun


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_entry_is_read_as_it_was_written(entry: Begun | Issued | Revoked | Listed) -> None:
    """What the journal tells is what was done."""
    assert parse_entry(entry_text(entry)) == entry


def test_a_whole_journal_is_read() -> None:
    """All of it, and with its head it can be continued."""
    journal = parse_journal(TEXT, KEY.public_key())

    assert journal.entries == ENTRIES
    assert journal.text(KEY).splitlines()[:-1] == TEXT.splitlines()[:-1]


@pytest.mark.parametrize("length", range(0, len(TEXT), 64))
def test_a_journal_that_was_cut_is_refused(length: int) -> None:
    """Wherever it was cut, at the end of a line too."""
    with pytest.raises(DamagedError):
        parse_journal(TEXT[:length], KEY.public_key())


@pytest.mark.parametrize("line", range(len(TEXT.splitlines())))
def test_a_journal_without_one_of_its_lines_is_refused(line: int) -> None:
    """The last one as well: whose certificate would nobody revoke?"""
    lines = TEXT.splitlines(keepends=True)

    with pytest.raises(DamagedError):
        parse_journal("".join((*lines[:line], *lines[line + 1 :])), KEY.public_key())


@pytest.mark.parametrize("place", range(0, len(TEXT), 41))
def test_a_journal_that_was_edited_is_refused(place: int) -> None:
    """A single letter anywhere."""
    other = "1" if TEXT[place] != "1" else "2"

    with pytest.raises(DamagedError):
        parse_journal(TEXT[:place] + other + TEXT[place + 1 :], KEY.public_key())


def test_a_journal_that_somebody_else_wrote_is_refused() -> None:
    """Bound and sealed as ours are, but by another key."""
    forged = new_journal(ENTRIES[0]).with_entries(ENTRIES[1:3]).text(new_key())

    with pytest.raises(DamagedError, match="not of this authority"):
        parse_journal(forged, KEY.public_key())


def test_two_journals_merged_are_refused() -> None:
    """As git leaves them when two people have issued on two machines."""
    merged = f"{TEXT}<<<<<<< ours\n=======\n>>>>>>> theirs\n"

    with pytest.raises(DamagedError):
        parse_journal(merged, KEY.public_key())


def _cut(folder: PkiFolder) -> None:
    folder.journal.write_text(folder.journal.read_text()[:-70])


def _edited(folder: PkiFolder) -> None:
    folder.journal.write_text(folder.journal.read_text().replace("grace", "gracy"))


def _gone(folder: PkiFolder) -> None:
    folder.journal.unlink()


def _binary(folder: PkiFolder) -> None:
    folder.journal.write_bytes(b"\xff\x00" * 100)


@pytest.mark.parametrize("damage", [_cut, _edited, _gone, _binary])
def test_a_damaged_journal_is_kept_and_its_copy_offered(damage: Callable[[PkiFolder], None], folder: PkiFolder) -> None:
    """Nothing is done on its word; what the message says brings it back."""
    before = folder.journal.read_bytes()
    damage(folder)
    damaged = folder.journal.read_bytes() if folder.journal.exists() else None

    with pytest.raises(DamagedJournal, match="refused") as refused:
        added(folder, "eve")

    assert damaged == (folder.journal.read_bytes() if folder.journal.exists() else None)
    assert "cp journal.copy journal" in refused.value.fix
    folder.journal.write_bytes(folder.copy.read_bytes())
    assert folder.journal.read_bytes() == before
    assert added(folder, "eve")


def test_an_older_journal_put_back_is_refused(tmp_path: Path) -> None:
    """It is whole and sealed, and forgets who was issued what since."""
    folder = begun_in(tmp_path)
    older = folder.journal.read_bytes()
    added(folder, "ada")
    folder.journal.write_bytes(older)

    with pytest.raises(DamagedJournal, match="its copy tells more"):
        pki_in(folder)


def test_a_copy_that_is_one_change_behind_is_good(tmp_path: Path) -> None:
    """A run that was killed between the two leaves it so, and the next one mends it."""
    folder = begun_in(tmp_path)
    older = folder.copy.read_bytes()
    added(folder, "ada")
    folder.copy.write_bytes(older)

    added(folder, "grace")

    assert folder.copy.read_bytes() == folder.journal.read_bytes()


def test_a_journal_and_a_copy_both_damaged_are_refused(folder: PkiFolder) -> None:
    """Only what was saved elsewhere helps then, and no certificate is issued meanwhile."""
    _cut(folder)
    folder.copy.write_text("")

    with pytest.raises(DamagedJournal) as refused:
        pki_in(folder)

    assert "committed or saved" in refused.value.fix


def test_a_folder_of_another_fleet_is_refused(folder: PkiFolder) -> None:
    """Its certificates would open this fleet's gateways to others."""
    with pytest.raises(InputError, match="another fleet"):
        open_pki(folder, "other", lambda _begun: FolderKeys(folder.keys))
