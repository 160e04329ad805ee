"""Which certificates and root lists are accepted from the committed folder: only those that its own keys vouch for."""

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bedplate.errors import InputError
from tests.testlab.keys.authority import FLEET, NOW, added, begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.authority import Level, Reason, list_text, new_authority, new_root, number_of, read_lists, signed_list
from vpn.certificates import HASH, Issuer, Use, certificate_text, gateway, laptop, new_key, usage
from vpn.gateways import book_of
from vpn.journal import (
    Begun,
    DamagedError,
    Issued,
    Listed,
    Revoked,
    entry_text,
    new_journal,
    parse_entry,
    parse_journal,
)
from vpn.pki import FOLDER, DamagedJournal, FolderKeys, PkiFolder, begin, list_replacing, open_pki
from vpn.signing import add, due, relist, renew, revoke
from vpn.status import standing

ROOT = new_root(FLEET, NOW)
EVIL = new_authority("evil", NOW)
DAY = timedelta(days=1)


@pytest.fixture
def rooted(tmp_path: Path) -> PkiFolder:
    """Return the folder of an authority under a root, with two laptops."""
    made = begun_in(tmp_path, root=ROOT)
    added(made, "ada", "grace")
    return made


def _appended(folder: PkiFolder) -> None:
    with folder.authority.open("a") as file:
        file.write(certificate_text(EVIL.certificate))


def _repeated(folder: PkiFolder) -> None:
    folder.authority.write_text(folder.authority.read_text() * 2)


def _replaced(folder: PkiFolder) -> None:
    folder.authority.write_text(certificate_text(EVIL.certificate))


def _emptied(folder: PkiFolder) -> None:
    folder.authority.write_text("")


@pytest.mark.parametrize("change", [_appended, _repeated, _replaced, _emptied])
def test_an_authority_that_signed_itself_is_the_only_certificate(
    change: Callable[[PkiFolder], None], folder: PkiFolder
) -> None:
    """Each further certificate of authority.crt would be trusted by every gateway and laptop."""
    change(folder)

    with pytest.raises(InputError, match=r"authority\.crt|seal"):
        pki_in(folder)


def _root_swapped(folder: PkiFolder) -> None:
    own = folder.authority.read_text().replace(certificate_text(ROOT.certificate), "")
    folder.authority.write_text(own + certificate_text(EVIL.certificate))


def _root_renewed(folder: PkiFolder) -> None:
    """Put in another certificate of the same root key: it verifies, but the journal names the first."""
    other = _certificate_of(ROOT)
    own = folder.authority.read_text().replace(certificate_text(ROOT.certificate), "")
    folder.authority.write_text(own + other)


def _certificate_of(issuer: Issuer) -> str:
    subject = issuer.certificate.subject
    return certificate_text(
        x509.CertificateBuilder(subject, subject, issuer.key.public_key(), 7)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 3650 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .sign(issuer.key, HASH())
    )


def _root_removed(folder: PkiFolder) -> None:
    folder.authority.write_text(folder.authority.read_text().replace(certificate_text(ROOT.certificate), ""))


@pytest.mark.parametrize(
    "change", [_appended, _root_swapped, _root_renewed, _root_removed], ids=["third", "swapped", "renewed", "removed"]
)
def test_a_root_is_the_one_that_signed_the_authority(change: Callable[[PkiFolder], None], rooted: PkiFolder) -> None:
    """It is verified by the issuing certificate's signature and by its digest in the sealed journal."""
    change(rooted)

    with pytest.raises(InputError, match=r"authority\.crt"):
        pki_in(rooted)


@pytest.mark.parametrize(
    "text",
    ["", certificate_text(ROOT.certificate), certificate_text(EVIL.certificate)],
    ids=["empty", "root", "foreign"],
)
def test_a_twin_is_signed_by_the_issuing_key(text: str, rooted: PkiFolder) -> None:
    """It is what daemons trust, and is not in the journal: nobody else can make one."""
    rooted.twin.write_text(text)

    with pytest.raises(InputError, match=r"trusted\.crt"):
        pki_in(rooted)


def test_a_root_revokes_the_authority_that_it_replaces(rooted: PkiFolder, tmp_path: Path) -> None:
    """Its next list has the next number and holds every authority replaced so far; openssl refuses those."""
    need_program("openssl")
    former = pki_in(rooted).authority
    second, third = tmp_path / "second", tmp_path / "third"
    for last, path in ((rooted, second), (PkiFolder(second / "fleet.pki"), third)):
        path.mkdir()
        made = PkiFolder(path / "fleet.pki")
        root_list = list_replacing(last.authority, ROOT, NOW + DAY)
        begin(made, Begun(NOW, FLEET, "", FOLDER), FolderKeys(made.keys), root=ROOT, root_list=root_list)

    (found,) = read_lists(made.root_list.read_text())
    root, old = (tmp_path / "root.crt", tmp_path / "old.crt")
    root.write_text(certificate_text(ROOT.certificate))
    old.write_text(certificate_text(former.certificate))
    verify = ["openssl", "verify", "-crl_check", "-CAfile", str(root), "-attime", str(int((NOW + DAY).timestamp()))]
    before, after = (
        subprocess.run([*verify, "-CRLfile", str(each), str(old)], capture_output=True, text=True, check=False)
        for each in (rooted.root_list, made.root_list)
    )

    assert number_of(found) == 3
    assert next(iter(found)).serial_number == former.certificate.serial_number
    assert len(found) == 2
    assert before.returncode == 0
    assert "certificate revoked" in after.stderr


def test_only_an_authority_of_the_same_root_is_replaced(rooted: PkiFolder, tmp_path: Path) -> None:
    """The root could not revoke another; nor is its number known without the list that it signed last."""
    other = tmp_path / "other"
    other.mkdir()
    alone = begun_in(other)

    with pytest.raises(InputError, match="not signed by this root"):
        list_replacing(alone.authority, ROOT, NOW)
    rooted.root_list.unlink()
    with pytest.raises(InputError, match=r"root\.crl\.pem must hold one revocation list"):
        list_replacing(rooted.authority, ROOT, NOW)


def _junk(text: str) -> str:
    return f"{text}junk\n"


def _foreign(_text: str) -> str:
    return list_text(signed_list(new_root(FLEET, NOW), (), 1, NOW))


@pytest.mark.parametrize("change", [_junk, _foreign, lambda text: text * 2, lambda _text: ""])
def test_nothing_is_signed_next_to_a_damaged_root_list(change: Callable[[str], str], rooted: PkiFolder) -> None:
    """It is refused before the journal is written, and listed as an error; restored, it no longer stops anybody."""
    whole, journal = rooted.root_list.read_text(), rooted.journal.read_bytes()
    rooted.root_list.write_text(change(whole))

    with pytest.raises(InputError, match=r"root\.crl\.pem must hold one revocation list") as refused:
        revoke(pki_in(rooted), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert "restore it from where it is committed" in refused.value.fix
    assert rooted.journal.read_bytes() == journal
    assert [fault.level for fault in standing(pki_in(rooted), ("ada", "grace"), NOW).faults] == [Level.ERROR]
    rooted.root_list.write_text(whole)
    assert revoke(pki_in(rooted), ["ada.laptop"], Reason.LOST, NOW, unasked)


def test_nothing_is_signed_next_to_an_expired_root_list(rooted: PkiFolder) -> None:
    """Tunnels that know each other by certificates would refuse each other."""
    rooted.root_list.write_text(list_text(signed_list(ROOT, (), 1, NOW - 2 * DAY, DAY)))

    with pytest.raises(InputError, match=r"root\.crl\.pem expired on 2026-11-20") as refused:
        revoke(pki_in(rooted), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert "--replaces" in refused.value.fix


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


PEOPLE = ("ada", "grace")
CELLAR, ATTIC = gateway("cellar", "lab.internal"), gateway("attic", "lab.internal")


@pytest.fixture
def vpn_pki_standing_folder(tmp_path: Path) -> PkiFolder:
    """Return a folder with two people's laptops and one gateway."""
    begun = begun_in(tmp_path)
    added(begun, *PEOPLE)
    add(pki_in(begun), [CELLAR], NOW, unasked)
    return begun


@pytest.mark.parametrize(
    ("days", "note", "left"), [(0, "", 90), (75, "", 15), (76, "ends soon", 14), (89, "ends soon", 1), (90, "ended", 0)]
)
def test_a_certificate_near_its_end_is_marked(
    days: int, note: str, left: int, vpn_pki_standing_folder: PkiFolder
) -> None:
    """From two weeks on; an ended one stays in the list until it is renewed."""
    found = standing(pki_in(vpn_pki_standing_folder), PEOPLE, NOW + days * DAY).holders

    assert {(each.days, each.note) for each in found} == {(left, note)}


def test_who_left_is_marked_and_due(vpn_pki_standing_folder: PkiFolder) -> None:
    """A laptop of somebody who is in the file is neither, and no gateway is taken for a person's."""
    pki = pki_in(vpn_pki_standing_folder)
    marked = {each.name for each in standing(pki, ("ada",), NOW).holders if "has left" in each.note}

    assert marked == {"grace.laptop"}
    assert due(pki.roll, ("ada",), [CELLAR], (), NOW).left == ("grace.laptop",)
    assert due(pki.roll, PEOPLE, [CELLAR], (), NOW).left == ()


def test_an_ended_certificate_is_no_matter_for_revocation(vpn_pki_standing_folder: PkiFolder) -> None:
    """Nobody is due who could not come in anyway."""
    assert due(pki_in(vpn_pki_standing_folder).roll, (), [], (), NOW + 91 * DAY) == due(
        pki_in(vpn_pki_standing_folder).roll, PEOPLE, [], (), NOW + 91 * DAY
    )


@pytest.mark.parametrize(
    ("days", "lacking"), [(0, [ATTIC]), (44, [ATTIC]), (46, [CELLAR, ATTIC]), (91, [CELLAR, ATTIC])]
)
def test_a_gateway_gets_a_certificate_in_time(
    days: int, lacking: list[object], vpn_pki_standing_folder: PkiFolder
) -> None:
    """A new one at once, one that stands at the half of its certificate's life."""
    assert (
        list(due(pki_in(vpn_pki_standing_folder).roll, PEOPLE, [CELLAR, ATTIC], (), NOW + days * DAY).lacking)
        == lacking
    )


def test_a_gateway_whose_key_is_lost_gets_another(vpn_pki_standing_folder: PkiFolder) -> None:
    """As after a run that was killed between the journal and the key."""
    roll = pki_in(vpn_pki_standing_folder).roll

    assert due(roll, PEOPLE, [CELLAR], {CELLAR.name}, NOW).lacking == (CELLAR,)
    assert due(roll, PEOPLE, [CELLAR], {"ada.laptop"}, NOW).lacking == ()


def test_a_gateway_that_is_gone_is_due(vpn_pki_standing_folder: PkiFolder) -> None:
    """Whoever has its disk could pose as a gateway."""
    assert due(pki_in(vpn_pki_standing_folder).roll, PEOPLE, [ATTIC], (), NOW).gone == (CELLAR.name,)


def test_a_renewed_laptop_is_listed_once(vpn_pki_standing_folder: PkiFolder) -> None:
    """With its newest certificate."""
    newest = renew(pki_in(vpn_pki_standing_folder), [laptop("ada")], NOW + DAY, unasked)[0]
    found = [
        each
        for each in standing(pki_in(vpn_pki_standing_folder), PEOPLE, NOW + DAY).holders
        if each.name == "ada.laptop"
    ]

    assert [each.serial for each in found] == [newest.serial]


def test_the_list_and_its_revocations_are_told(vpn_pki_standing_folder: PkiFolder) -> None:
    """Its number grows with each; what it revokes is counted."""
    revoke(pki_in(vpn_pki_standing_folder), ["grace.laptop"], Reason.LOST, NOW, unasked)
    told = standing(pki_in(vpn_pki_standing_folder), PEOPLE, NOW)

    assert (told.number, told.revoked, told.until) == (2, 1, NOW + 90 * DAY)
    assert not told.faults


@pytest.mark.parametrize(("days", "level"), [(77, Level.WARNING), (88, Level.ERROR), (91, Level.ERROR)])
def test_a_list_near_its_end_is_told(days: int, level: Level, vpn_pki_standing_folder: PkiFolder) -> None:
    """With the command that renews it, after which nothing is left to say."""
    later = NOW + days * DAY
    (fault,) = standing(pki_in(vpn_pki_standing_folder), PEOPLE, later).faults

    assert fault.level is level
    assert "`bedplate vpn sync`" in fault.message
    relist(pki_in(vpn_pki_standing_folder), later, unasked)
    assert standing(pki_in(vpn_pki_standing_folder), PEOPLE, later).faults == ()


def test_an_authority_in_its_last_year_is_told(vpn_pki_standing_folder: PkiFolder) -> None:
    """Every profile ends with it."""
    end = pki_in(vpn_pki_standing_folder).authority.certificate.not_valid_after_utc
    late = end - 300 * DAY
    relist(pki_in(vpn_pki_standing_folder), late, unasked)

    assert [fault.level for fault in standing(pki_in(vpn_pki_standing_folder), PEOPLE, late).faults] == [Level.WARNING]


def test_gateways_hear_what_a_laptop_that_stays_had_before(vpn_pki_standing_folder: PkiFolder) -> None:
    """A session may be by a certificate that was taken back; who is let in no more is cut off without it."""
    before = pki_in(vpn_pki_standing_folder).roll.holders()
    revoke(pki_in(vpn_pki_standing_folder), ("ada.laptop", "grace.laptop"), Reason.LOST, NOW, unasked)
    add(pki_in(vpn_pki_standing_folder), [laptop("ada")], NOW, unasked)

    book = book_of(pki_in(vpn_pki_standing_folder), NOW)

    assert [each.name for each in book.laptops] == ["ada.laptop"]
    assert book.revoked == {before["ada.laptop"].serial: "ada.laptop"}
