"""Which certificates and root lists are accepted from the committed folder: only those that its own keys vouch for."""

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bedplate.errors import InputError
from tests.support.authority import FLEET, NOW, added, begun_in, pki_in, unasked
from tests.support.needs import need_program
from vpn.authority import new_authority, new_root
from vpn.certificate import HASH, Issuer, certificate_text, usage
from vpn.entry import Begun
from vpn.judgement import Level
from vpn.key_store import FOLDER, FolderKeys
from vpn.pki import begin
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason, list_text, number_of, read_lists, signed_list
from vpn.root import list_replacing
from vpn.signing import revoke
from vpn.standing import standing

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
