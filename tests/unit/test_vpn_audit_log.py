"""The key folder: verification of authority, root and audit log, and the table of certificates with its findings."""

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bedplate.errors import InputError
from bedplate.rules import Level
from tests.testlab.keys.authority import FLEET, NOW, added, begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.audit_log import (
    Begun,
    DamagedError,
    Entry,
    Issued,
    Listed,
    NotAnEntryError,
    Revoked,
    TlsCryptKey,
    entry_text,
    new_audit_log,
    parse_audit_log,
    parse_entry,
)
from vpn.authority import Reason, crl_number, crl_text, new_authority, new_root, parse_crls, sign_crl
from vpn.certificates import HASH, Issuer, Use, certificate_text, gateway_subject, key_usage, laptop, new_key
from vpn.gateways import access_list_of
from vpn.pki import (
    FOLDER,
    DamagedAuditLog,
    FolderKeys,
    PkiFolder,
    create_authority,
    open_pki,
    root_crl_replacing,
    root_crl_texts,
)
from vpn.signing import add, due, renew, renew_crl, revoke
from vpn.status import keys_status

ROOT = new_root(FLEET, NOW)
FOREIGN = new_authority("foreign", NOW)
DAY = timedelta(days=1)


@pytest.fixture
def folder_with_root(tmp_path: Path) -> PkiFolder:
    """Return the folder of an authority under a root, with two laptops."""
    folder = begun_in(tmp_path, root=ROOT)
    added(folder, "ada", "grace")
    return folder


def _appended(folder: PkiFolder) -> None:
    with folder.authority.open("a") as file:
        file.write(certificate_text(FOREIGN.certificate))


def _repeated(folder: PkiFolder) -> None:
    folder.authority.write_text(folder.authority.read_text() * 2)


def _replaced(folder: PkiFolder) -> None:
    folder.authority.write_text(certificate_text(FOREIGN.certificate))


def _emptied(folder: PkiFolder) -> None:
    folder.authority.write_text("")


@pytest.mark.parametrize("change", [_appended, _repeated, _replaced, _emptied])
def test_authority_crt_without_a_root_has_one_certificate(
    change: Callable[[PkiFolder], None], folder: PkiFolder
) -> None:
    """Gateways and laptops would trust each further certificate."""
    change(folder)

    with pytest.raises(InputError, match=r"authority\.crt|signature"):
        pki_in(folder)


def _root_swapped(folder: PkiFolder) -> None:
    issuing = folder.authority.read_text().replace(certificate_text(ROOT.certificate), "")
    folder.authority.write_text(issuing + certificate_text(FOREIGN.certificate))


def _root_renewed(folder: PkiFolder) -> None:
    """Use another certificate of the same root key: its signature is valid, but the audit log names the first."""
    other_root = _certificate_of(ROOT)
    issuing = folder.authority.read_text().replace(certificate_text(ROOT.certificate), "")
    folder.authority.write_text(issuing + other_root)


def _certificate_of(issuer: Issuer) -> str:
    subject = issuer.certificate.subject
    return certificate_text(
        x509.CertificateBuilder(subject, subject, issuer.key.public_key(), 7)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 3650 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(issuer.key, HASH())
    )


def _root_removed(folder: PkiFolder) -> None:
    folder.authority.write_text(folder.authority.read_text().replace(certificate_text(ROOT.certificate), ""))


def _trusted_appended(folder: PkiFolder) -> None:
    other = certificate_text(FOREIGN.certificate).replace("CERTIFICATE", "TRUSTED CERTIFICATE")
    folder.authority.write_text(folder.authority.read_text() + other)


def _text_appended(folder: PkiFolder) -> None:
    folder.authority.write_text(folder.authority.read_text() + "text\n")


@pytest.mark.parametrize(
    "change", [_appended, _root_swapped, _root_renewed, _root_removed, _trusted_appended, _text_appended]
)
def test_a_root_is_the_one_that_signed_the_authority(
    change: Callable[[PkiFolder], None], folder_with_root: PkiFolder
) -> None:
    """The signature of the issuing certificate and the digest in the audit log verify it."""
    change(folder_with_root)

    with pytest.raises(InputError, match=r"authority\.crt"):
        pki_in(folder_with_root)


@pytest.mark.parametrize(
    "text",
    ["", certificate_text(ROOT.certificate), certificate_text(FOREIGN.certificate)],
    ids=["empty", "root", "foreign"],
)
def test_a_twin_is_signed_with_the_issuing_key(text: str, folder_with_root: PkiFolder) -> None:
    """Daemons trust it, and the audit log does not name it: only the owner of the issuing key can sign one."""
    folder_with_root.twin.write_text(text)

    with pytest.raises(InputError, match=r"trusted\.crt"):
        pki_in(folder_with_root)


def test_a_root_revokes_the_authority_that_it_replaces(folder_with_root: PkiFolder, tmp_path: Path) -> None:
    """Its next list has the next number and all replaced authorities; openssl rejects these."""
    need_program("openssl")
    former = pki_in(folder_with_root).authority
    second, third = tmp_path / "second", tmp_path / "third"
    for last, path in ((folder_with_root, second), (PkiFolder(second / "fleet.pki"), third)):
        path.mkdir()
        successor = PkiFolder(path / "fleet.pki")
        root_list = root_crl_replacing(last.authority, ROOT, NOW + DAY)
        create_authority(
            successor, Begun(NOW, FLEET, "", FOLDER, "", ""), FolderKeys(successor.keys), root=ROOT, root_list=root_list
        )

    (crl,) = parse_crls(successor.root_list.read_text())
    root, old = (tmp_path / "root.crt", tmp_path / "old.crt")
    root.write_text(certificate_text(ROOT.certificate))
    old.write_text(certificate_text(former.certificate))
    verify = ["openssl", "verify", "-crl_check", "-CAfile", str(root), "-attime", str(int((NOW + DAY).timestamp()))]
    before, after = (
        subprocess.run([*verify, "-CRLfile", str(file), str(old)], capture_output=True, text=True, check=False)
        for file in (folder_with_root.root_list, successor.root_list)
    )

    assert crl_number(crl) == 3
    assert next(iter(crl)).serial_number == former.certificate.serial_number
    assert len(crl) == 2
    assert before.returncode == 0
    assert "certificate revoked" in after.stderr


def test_only_an_authority_of_the_same_root_is_replaced(folder_with_root: PkiFolder, tmp_path: Path) -> None:
    """The root cannot revoke others, and needs its last list for the next number."""
    other = tmp_path / "other"
    other.mkdir()
    alone = begun_in(other)

    with pytest.raises(InputError, match="not signed by this root"):
        root_crl_replacing(alone.authority, ROOT, NOW)
    folder_with_root.root_list.unlink()
    with pytest.raises(InputError, match=r"root\.crl\.pem must hold one revocation list"):
        root_crl_replacing(folder_with_root.authority, ROOT, NOW)


def _junk(text: str) -> str:
    return f"{text}junk\n"


def _foreign(_text: str) -> str:
    return crl_text(sign_crl(new_root(FLEET, NOW), (), 1, NOW))


@pytest.mark.parametrize("change", [_junk, _foreign, lambda text: text * 2, lambda _text: ""])
def test_nothing_is_signed_with_a_damaged_root_list(change: Callable[[str], str], folder_with_root: PkiFolder) -> None:
    """The error comes before the audit log is written, and is a finding; a restored list has none."""
    valid_list, log = folder_with_root.root_list.read_text(), folder_with_root.journal.read_bytes()
    folder_with_root.root_list.write_text(change(valid_list))

    with pytest.raises(InputError, match=r"root\.crl\.pem must hold one revocation list") as error:
        revoke(pki_in(folder_with_root), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert "restore it from the last commit" in error.value.fix
    assert folder_with_root.journal.read_bytes() == log
    assert [finding.level for finding in keys_status(pki_in(folder_with_root), ("ada", "grace"), NOW).faults] == [
        Level.ERROR
    ]
    folder_with_root.root_list.write_text(valid_list)
    assert revoke(pki_in(folder_with_root), ["ada.laptop"], Reason.LOST, NOW, unasked)


def test_nothing_is_signed_with_an_expired_root_list(folder_with_root: PkiFolder) -> None:
    """Tunnels with certificates would reject each other."""
    (crl,) = parse_crls(folder_with_root.root_list.read_text())

    with pytest.raises(InputError, match=r"root\.crl\.pem expired on 20") as error:
        root_crl_texts(pki_in(folder_with_root), crl.next_update_utc or NOW)

    assert "--replaces" in error.value.fix


@pytest.mark.parametrize("number", [1, 2, 3], ids=["older", "other", "newer"])
def test_only_the_list_of_the_journal_is_accepted(number: int, folder_with_root: PkiFolder, tmp_path: Path) -> None:
    """Every list of the root has its signature: an older one would trust a revoked authority again."""
    (tmp_path / "next").mkdir()
    successor = PkiFolder(tmp_path / "next" / "fleet.pki")
    root_list = root_crl_replacing(folder_with_root.authority, ROOT, NOW)
    create_authority(
        successor, Begun(NOW, FLEET, "", FOLDER, "", ""), FolderKeys(successor.keys), root=ROOT, root_list=root_list
    )
    assert len(root_crl_texts(pki_in(successor), NOW)) == 1
    successor.root_list.write_text(crl_text(sign_crl(ROOT, (), number, NOW)))

    message = rf"root\.crl\.pem has number {number}, the journal names another list 2"
    with pytest.raises(InputError, match=message) as error:
        revoke(pki_in(successor), ["ada.laptop"], Reason.LOST, NOW, unasked)
    assert "restore it from the last commit" in error.value.fix
    with pytest.raises(InputError, match=message):
        root_crl_replacing(successor.authority, ROOT, NOW)


ENTRIES = (
    Begun(NOW, "lab", "ab" * 32, "folder", "", "34" * 32, f"1 {'cd' * 32}"),
    Issued(NOW, 2**70, "ada.laptop", Use.CLIENT, NOW + timedelta(days=90), "cd" * 32, 0),
    Issued(NOW, 2**71, "gateway.cellar.lab.internal", Use.SERVER, NOW + timedelta(days=90), "ef" * 32),
    Revoked(NOW, 2**70, Reason.LOST),
    Listed(NOW, 2, NOW + timedelta(days=90)),
    TlsCryptKey(NOW, "12" * 32),
)
KEY = new_key()
TEXT = new_audit_log(ENTRIES[0]).with_entries(ENTRIES[1:]).text(KEY)


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return a folder with two people in its audit log, one of them revoked."""
    begun = begun_in(tmp_path)
    added(begun, "ada", "grace")
    revoke(pki_in(begun), ["grace.laptop"], Reason.LOST, NOW, unasked)
    return begun


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_parsed_unchanged(entry: Entry) -> None:
    """Entries of all kinds are read as they were written."""
    assert parse_entry(entry_text(entry)) == entry


@pytest.mark.parametrize("key", ["begun", "at", "authority", "keys", "root", "tls_crypt"])
def test_a_first_entry_without_a_key_is_rejected(key: str) -> None:
    """Only the list of the root may be missing, which older logs lack: no other digest is taken for an empty one."""
    document = {name: value for name, value in json.loads(entry_text(ENTRIES[0])).items() if name != key}

    with pytest.raises(NotAnEntryError):
        parse_entry(json.dumps(document))


def test_a_complete_audit_log_is_parsed() -> None:
    """The result has all entries, and entries can be added to it."""
    log = parse_audit_log(TEXT, KEY.public_key())

    assert log.entries == ENTRIES
    assert log.text(KEY).splitlines()[:-1] == TEXT.splitlines()[:-1]


@pytest.mark.parametrize("length", range(0, len(TEXT), 64))
def test_an_audit_log_that_was_cut_is_rejected(length: int) -> None:
    """At any position, also at the end of a line."""
    with pytest.raises(DamagedError):
        parse_audit_log(TEXT[:length], KEY.public_key())


@pytest.mark.parametrize("line", range(len(TEXT.splitlines())))
def test_an_audit_log_without_one_line_is_rejected(line: int) -> None:
    """Any line, also the last one: its certificate would not be revoked."""
    lines = TEXT.splitlines(keepends=True)

    with pytest.raises(DamagedError):
        parse_audit_log("".join((*lines[:line], *lines[line + 1 :])), KEY.public_key())


@pytest.mark.parametrize("position", range(0, len(TEXT), 41))
def test_an_audit_log_that_was_edited_is_rejected(position: int) -> None:
    """A single character at any position."""
    other = "1" if TEXT[position] != "1" else "2"

    with pytest.raises(DamagedError):
        parse_audit_log(TEXT[:position] + other + TEXT[position + 1 :], KEY.public_key())


def test_an_audit_log_of_another_key_is_rejected() -> None:
    """Its hashes are valid, but its signature is not of this authority."""
    foreign = new_audit_log(ENTRIES[0]).with_entries(ENTRIES[1:3]).text(new_key())

    with pytest.raises(DamagedError, match="not of this authority"):
        parse_audit_log(foreign, KEY.public_key())


def test_an_audit_log_with_merge_markers_is_rejected() -> None:
    """Git leaves them if two operators signed on two machines."""
    merged = f"{TEXT}<<<<<<< ours\n=======\n>>>>>>> theirs\n"

    with pytest.raises(DamagedError):
        parse_audit_log(merged, KEY.public_key())


def _cut(folder: PkiFolder) -> None:
    folder.journal.write_text(folder.journal.read_text()[:-70])


def _edited(folder: PkiFolder) -> None:
    folder.journal.write_text(folder.journal.read_text().replace("grace", "gracy"))


def _deleted(folder: PkiFolder) -> None:
    folder.journal.unlink()


def _binary(folder: PkiFolder) -> None:
    folder.journal.write_bytes(b"\xff\x00" * 100)


@pytest.mark.parametrize("damage", [_cut, _edited, _deleted, _binary])
def test_a_damaged_audit_log_is_kept_and_its_copy_offered(
    damage: Callable[[PkiFolder], None], folder: PkiFolder
) -> None:
    """Nothing is signed, and the command in the message restores the log."""
    before = folder.journal.read_bytes()
    damage(folder)
    damaged = folder.journal.read_bytes() if folder.journal.exists() else None

    with pytest.raises(DamagedAuditLog, match="audit log is damaged") as error:
        added(folder, "eve")

    assert damaged == (folder.journal.read_bytes() if folder.journal.exists() else None)
    assert "cp journal.copy journal" in error.value.fix
    folder.journal.write_bytes(folder.copy.read_bytes())
    assert folder.journal.read_bytes() == before
    assert added(folder, "eve")


def test_an_audit_log_older_than_its_copy_is_rejected(tmp_path: Path) -> None:
    """The older log is complete and signed, but lacks newer entries."""
    folder = begun_in(tmp_path)
    older = folder.journal.read_bytes()
    added(folder, "ada")
    folder.journal.write_bytes(older)

    with pytest.raises(DamagedAuditLog, match=r"journal\.copy is newer"):
        pki_in(folder)


def test_a_diverged_audit_log_is_not_replaced_by_its_copy(tmp_path: Path) -> None:
    """Each has entries that the other lacks, as after a merge: the fix discards none of them."""
    folder = begun_in(tmp_path)
    older = folder.journal.read_bytes(), folder.copy.read_bytes()
    added(folder, "ada")
    diverged = folder.copy.read_bytes()
    folder.journal.write_bytes(older[0])
    folder.copy.write_bytes(older[1])
    added(folder, "grace")
    folder.copy.write_bytes(diverged)

    with pytest.raises(DamagedAuditLog, match="have diverged") as error:
        pki_in(folder)

    assert "from the last commit or a backup" in error.value.fix


def test_a_copy_that_is_one_change_behind_is_accepted(tmp_path: Path) -> None:
    """A run that was killed between both files leaves it, and the next run updates it."""
    folder = begun_in(tmp_path)
    older = folder.copy.read_bytes()
    added(folder, "ada")
    folder.copy.write_bytes(older)

    added(folder, "grace")

    assert folder.copy.read_bytes() == folder.journal.read_bytes()


def test_a_damaged_audit_log_with_a_damaged_copy_is_rejected(folder: PkiFolder) -> None:
    """The fix is a commit or a backup."""
    _cut(folder)
    folder.copy.write_text("")

    with pytest.raises(DamagedAuditLog) as error:
        pki_in(folder)

    assert "from the last commit or a backup" in error.value.fix


def test_a_folder_of_another_fleet_is_rejected(folder: PkiFolder) -> None:
    """Its certificates would be valid at this fleet's gateways."""
    with pytest.raises(InputError, match="another fleet"):
        open_pki(folder, "other", lambda _begun: FolderKeys(folder.keys))


PEOPLE = ("ada", "grace")
CELLAR, ATTIC = gateway_subject("cellar", "lab.internal"), gateway_subject("attic", "lab.internal")


@pytest.fixture
def fleet_folder(tmp_path: Path) -> PkiFolder:
    """Return a folder with two people's laptops and one gateway."""
    begun = begun_in(tmp_path)
    added(begun, *PEOPLE)
    add(pki_in(begun), [CELLAR], NOW, unasked)
    return begun


@pytest.mark.parametrize(
    ("use", "days", "note", "left"),
    [
        (Use.CLIENT, 0, "", 90),
        (Use.CLIENT, 75, "", 15),
        (Use.CLIENT, 76, "expires soon", 14),
        (Use.CLIENT, 89, "expires soon", 1),
        (Use.CLIENT, 90, "expired", 0),
        (Use.SERVER, 8, "", 6),
        (Use.SERVER, 9, "expires soon", 5),
        (Use.SERVER, 14, "expired", 0),
    ],
)
def test_a_certificate_near_its_end_has_a_note(
    use: Use, days: int, note: str, left: int, fleet_folder: PkiFolder
) -> None:
    """A laptop's two weeks before, a gateway's five days; an expired one stays in the table until it is renewed."""
    holders = keys_status(pki_in(fleet_folder), PEOPLE, NOW + days * DAY).holders

    assert {(holder.days, holder.note) for holder in holders if holder.use is use} == {(left, note)}


def test_a_laptop_of_a_removed_person_has_a_note_and_is_due(fleet_folder: PkiFolder) -> None:
    """Laptops of people in the fleet file and gateways are not due."""
    pki = pki_in(fleet_folder)
    with_note = {holder.name for holder in keys_status(pki, ("ada",), NOW).holders if "not in `people`" in holder.note}

    assert with_note == {"grace.laptop"}
    assert due(pki.certificates, ("ada",), [CELLAR], (), NOW).departed_laptops == ("grace.laptop",)
    assert due(pki.certificates, PEOPLE, [CELLAR], (), NOW).departed_laptops == ()


def test_an_expired_certificate_is_not_due_for_revocation(fleet_folder: PkiFolder) -> None:
    """An expired certificate cannot connect anyway."""
    index, later = pki_in(fleet_folder).certificates, NOW + 91 * DAY

    assert due(index, (), [], (), later) == due(index, PEOPLE, [], (), later)


@pytest.mark.parametrize(("days", "lacking"), [(0, [ATTIC]), (6, [ATTIC]), (8, [CELLAR, ATTIC]), (15, [CELLAR, ATTIC])])
def test_a_gateway_gets_a_certificate_in_time(days: int, lacking: list[object], fleet_folder: PkiFolder) -> None:
    """A new gateway immediately, others after half of the certificate's life."""
    expected = due(pki_in(fleet_folder).certificates, PEOPLE, [CELLAR, ATTIC], (), NOW + days * DAY)

    assert list(expected.missing_certificates) == lacking


def test_a_gateway_without_a_stored_key_gets_a_certificate(fleet_folder: PkiFolder) -> None:
    """A run that was killed before it stored the key leaves this."""
    index = pki_in(fleet_folder).certificates

    assert due(index, PEOPLE, [CELLAR], {CELLAR.name}, NOW).missing_certificates == (CELLAR,)
    assert due(index, PEOPLE, [CELLAR], {"ada.laptop"}, NOW).missing_certificates == ()


def test_a_removed_gateway_is_due_for_revocation(fleet_folder: PkiFolder) -> None:
    """Its disk could be used to impersonate a gateway."""
    assert due(pki_in(fleet_folder).certificates, PEOPLE, [ATTIC], (), NOW).unused_gateways == (CELLAR.name,)


def test_a_renewed_laptop_is_listed_once(fleet_folder: PkiFolder) -> None:
    """The list has the newest certificate of the laptop."""
    newest = renew(pki_in(fleet_folder), [laptop("ada")], NOW + DAY, unasked)[0]
    holders = keys_status(pki_in(fleet_folder), PEOPLE, NOW + DAY).holders

    assert [holder.serial for holder in holders if holder.name == "ada.laptop"] == [newest.serial]


def test_the_table_has_the_revocation_list(fleet_folder: PkiFolder) -> None:
    """Its number grows with each revocation, and revoked certificates are counted."""
    revoke(pki_in(fleet_folder), ["grace.laptop"], Reason.LOST, NOW, unasked)
    state = keys_status(pki_in(fleet_folder), PEOPLE, NOW)

    assert (state.number, state.revoked, state.until) == (2, 1, NOW + 90 * DAY)
    assert not state.faults


@pytest.mark.parametrize(("days", "level"), [(77, Level.WARNING), (88, Level.ERROR), (91, Level.ERROR)])
def test_a_revocation_list_near_its_end_has_a_finding(days: int, level: Level, fleet_folder: PkiFolder) -> None:
    """The finding names the command that renews the list, after which there is no finding."""
    later = NOW + days * DAY
    (finding,) = keys_status(pki_in(fleet_folder), PEOPLE, later).faults

    assert finding.level is level
    assert "`bedplate vpn sync`" in finding.message
    renew_crl(pki_in(fleet_folder), later, unasked)
    assert keys_status(pki_in(fleet_folder), PEOPLE, later).faults == ()


def test_an_authority_in_its_last_year_has_a_finding(fleet_folder: PkiFolder) -> None:
    """Every profile ends with it."""
    end = pki_in(fleet_folder).authority.certificate.not_valid_after_utc
    late = end - 300 * DAY
    renew_crl(pki_in(fleet_folder), late, unasked)

    assert [finding.level for finding in keys_status(pki_in(fleet_folder), PEOPLE, late).faults] == [Level.WARNING]


def test_an_access_list_has_revoked_certificates_of_its_laptops(fleet_folder: PkiFolder) -> None:
    """A session may still use one. Laptops outside the list are disconnected without it."""
    before = pki_in(fleet_folder).certificates.holders()
    revoke(pki_in(fleet_folder), ("ada.laptop", "grace.laptop"), Reason.LOST, NOW, unasked)
    add(pki_in(fleet_folder), [laptop("ada")], NOW, unasked)

    access_list = access_list_of(pki_in(fleet_folder), NOW)

    assert [device.name for device in access_list.laptops] == ["ada.laptop"]
    assert access_list.revoked == {before["ada.laptop"].serial: "ada.laptop"}
