"""Certificates and revocation lists: issued ones pass openssl and our checks, each seeded defect has a finding."""

import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.files import held
from bedplate.rules import Level
from tests.testlab.keys.authority import NOW, added, begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.authority import (
    Reason,
    authority_under,
    certificate_findings,
    crl_findings,
    crl_number,
    new_authority,
    new_root,
    parse_crls,
    root_findings,
    sign_crl,
)
from vpn.certificates import Issuer, Use, certificate_text, common_name, gateway_subject, issue, laptop, new_key
from vpn.pki import NoAuthority, PkiFolder, bundle_of, current_crl, deployable_crl
from vpn.signing import add, renew, renew_crl, revoke

DAY = timedelta(days=1)
AUTHORITY = new_authority("lab", NOW)


def _verify(folder: PkiFolder, name: str, purpose: str, now: datetime) -> str:
    """Return OK or the error of openssl for a certificate at a moment, with the files that daemons get."""
    need_program("openssl")
    certificate, trusted = folder.path / f"{name}.crt", folder.path / "ca.crt"
    trusted.write_text(pki_in(folder).authority.trusted)
    certificate.write_text(bundle_of(pki_in(folder), name, unasked).certificate)
    options = ("-x509_strict", "-crl_check_all", "-purpose", purpose, "-attime", str(int(now.timestamp())))
    files = ("-CAfile", str(trusted), "-CRLfile", str(folder.lists), str(certificate))
    done = subprocess.run(["openssl", "verify", *options, *files], capture_output=True, text=True, check=False)
    return "OK" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("has_root", [False, True], ids=["alone", "under a root"])
def test_openssl_accepts_issued_certificates(tmp_path: Path, *, has_root: bool) -> None:
    """A certificate is valid for its use, from five minutes before its issue until its end, unless it is revoked."""
    folder = begun_in(tmp_path, root=new_root("lab", NOW) if has_root else None)
    end = added(folder, "ada", "grace")[0].until
    revoke(pki_in(folder), ["grace.laptop"], Reason.LOST, NOW, unasked)

    assert _verify(folder, "ada.laptop", "sslclient", NOW - timedelta(minutes=4)) == "OK"
    assert _verify(folder, "ada.laptop", "sslclient", end - timedelta(seconds=1)) == "OK"
    assert "expired" in _verify(folder, "ada.laptop", "sslclient", end + timedelta(seconds=1))
    assert "not yet valid" in _verify(folder, "ada.laptop", "sslclient", NOW - timedelta(minutes=6))
    assert "purpose" in _verify(folder, "ada.laptop", "sslserver", NOW)
    assert "revoked" in _verify(folder, "grace.laptop", "sslclient", NOW)


def test_a_gateways_certificate_is_valid_for_two_weeks() -> None:
    """Laptops have no revocation list, so a stolen gateway is trusted until its certificate ends."""
    certificate = issue(AUTHORITY, gateway_subject("cellar", "lab.internal"), new_key().public_key(), 1, NOW)

    assert certificate.not_valid_after_utc - NOW == timedelta(days=14)


def test_a_roots_key_is_not_in_the_folder(tmp_path: Path) -> None:
    """The operator stores it elsewhere. Its certificate is in authority.crt, and no daemon trusts it."""
    root = new_root("lab", NOW)
    folder = begun_in(tmp_path, root=root)

    assert {file.name for file in folder.keys.iterdir()} == {"authority.pem", "tls-crypt-v2.pem"}
    assert folder.authority.read_text().endswith(certificate_text(root.certificate))
    assert certificate_text(root.certificate) not in pki_in(folder).authority.trusted


def test_no_certificate_outlives_its_authority() -> None:
    """Gateways would reject it in its last days."""
    late = AUTHORITY.certificate.not_valid_after_utc - DAY

    certificate = issue(AUTHORITY, laptop("ada"), new_key().public_key(), 1, late)

    assert certificate.not_valid_after_utc == AUTHORITY.certificate.not_valid_after_utc


def test_an_authority_cannot_sign_another_authority() -> None:
    """Its key is on the operator's machine: a thief can issue certificates, but no authority."""
    certificate = authority_under(new_root("lab", NOW), "lab", NOW).certificate

    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def _foreign_certificate(  # noqa: PLR0913  one parameter for each defect
    *,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    since: datetime = NOW,
    life: timedelta = timedelta(days=90),
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    signer: Issuer = AUTHORITY,
    ca: bool = False,
) -> x509.Certificate:
    """Return a laptop's certificate made by other tools."""
    name = signer.certificate.subject
    return (
        x509.CertificateBuilder(name, common_name("ada.laptop"), (key or new_key()).public_key(), 7)
        .not_valid_before(since)
        .not_valid_after(since + life)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .sign(signer.key, hashes.SHA384())
    )


def _rsa(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def _sha1_certificate() -> x509.Certificate:
    """Return a certificate signed with SHA-1, made by openssl because the library rejects it."""
    need_program("openssl")
    done = subprocess.run(
        ["openssl", "req", "-x509", "-sha1", "-newkey", "rsa:3072", "-noenc", "-keyout", "/dev/null", "-subj", "/CN=x"],
        capture_output=True,
        check=True,
    )
    return x509.load_pem_x509_certificate(done.stdout)


DEFECTS: dict[str, tuple[Callable[[], x509.Certificate], str]] = {
    "ended": (lambda: _foreign_certificate(since=NOW - 91 * DAY), "expired on 2026-11-20"),
    "not yet": (lambda: _foreign_certificate(since=NOW + DAY), "is not valid before 2026-11-22"),
    "short RSA": (
        lambda: _foreign_certificate(key=_rsa(1024)),
        "RSA key of 1024 bits, at least 3072 are required",
    ),
    "short curve": (lambda: _foreign_certificate(key=ec.generate_private_key(ec.SECP192R1())), "192 bits"),
    "SHA-1": (_sha1_certificate, "signed with SHA1"),
    "wrong use": (lambda: _foreign_certificate(use=ExtendedKeyUsageOID.SERVER_AUTH), "does not allow the use client"),
    "authority": (lambda: _foreign_certificate(ca=True), "is a CA certificate"),
    "foreign authority": (
        lambda: _foreign_certificate(signer=new_authority("lab", NOW)),
        "not issued by CN=lab VPN authority",
    ),
    "too long": (lambda: _foreign_certificate(life=826 * DAY), "is valid for 826 days, at most 825"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_a_certificate_is_one_finding(name: str) -> None:
    """The finding has the date or the number."""
    make, message = DEFECTS[name]

    findings = certificate_findings(make(), Use.CLIENT, AUTHORITY.certificate, NOW)

    assert [finding for finding in findings if message in finding.message and finding.level is Level.ERROR]
    assert name == "SHA-1" or len(findings) == 1


@pytest.mark.parametrize("days", [90, 825])
def test_a_valid_certificate_has_no_findings(days: int) -> None:
    """Certificates of other tools and our own, close to the limits."""
    own = issue(AUTHORITY, gateway_subject("cellar", "lab.internal"), new_key().public_key(), 1, NOW)

    for key in (_rsa(3072), ec.generate_private_key(ec.SECP256R1())):
        assert (
            certificate_findings(_foreign_certificate(life=days * DAY, key=key), Use.CLIENT, AUTHORITY.certificate, NOW)
            == ()
        )
    assert certificate_findings(own, Use.SERVER, AUTHORITY.certificate, NOW) == ()


def test_a_root_that_cannot_sign_has_a_finding() -> None:
    """Such a root has another key, is not a CA, or has expired; a valid root has no finding."""
    root = new_root("lab", NOW)

    assert root_findings(root, NOW) == ()
    assert "does not match the private key" in root_findings(Issuer(root.certificate, new_key()), NOW)[0].message
    assert "is not a CA certificate" in root_findings(Issuer(_foreign_certificate(), new_key()), NOW)[0].message
    assert "expired" in root_findings(root, NOW + 8000 * DAY)[0].message


@pytest.mark.parametrize(
    ("days", "levels"),
    [(0, []), (75, []), (77, [Level.WARNING]), (86, [Level.WARNING]), (88, [Level.ERROR]), (91, [Level.ERROR])],
)
def test_a_revocation_list_has_findings_near_its_end(days: int, levels: list[Level]) -> None:
    """A warning from 14 days before, an error from 3 days before."""
    crl = sign_crl(AUTHORITY, (), 1, NOW)

    assert [finding.level for finding in crl_findings(crl, AUTHORITY.certificate, NOW + days * DAY)] == levels


def test_a_revocation_list_of_another_authority_has_a_finding() -> None:
    """Also if both authorities have the same name."""
    crl = sign_crl(new_authority("lab", NOW), (), 1, NOW)

    assert "is not signed by CN=lab VPN authority" in crl_findings(crl, AUTHORITY.certificate, NOW)[0].message


def test_a_revocation_list_that_is_not_yet_valid_has_a_finding() -> None:
    """Gateways would reject all laptops until then."""
    crl = sign_crl(AUTHORITY, (), 1, NOW + DAY)

    assert "is not valid before 2026-11-22" in crl_findings(crl, AUTHORITY.certificate, NOW)[0].message


def _revoked(folder: PkiFolder) -> set[int]:
    return {entry.serial_number for entry in parse_crls(folder.lists.read_text())[0]}


def test_revoking_a_name_revokes_all_its_certificates(folder: PkiFolder) -> None:
    """Also the one before a renewal; other laptops keep theirs."""
    of_ada = [*added(folder, "ada"), *renew(pki_in(folder), [laptop("ada")], NOW, unasked)]
    added(folder, "grace")

    revoked = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    assert list(revoked) == of_ada
    assert _revoked(folder) == {certificate.serial for certificate in of_ada}
    assert set(pki_in(folder).certificates.holders()) == {"grace.laptop"}


def test_an_expired_certificate_stays_in_one_regular_list(folder: PkiFolder) -> None:
    """By RFC 5280 section 3.3, one regular list after its end still contains a revoked certificate."""
    added(folder, "ada", "grace")
    ada = revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW + 80 * DAY, unasked)[0]

    renew_crl(pki_in(folder), NOW + 126 * DAY, unasked)
    assert _revoked(folder) == {ada.serial}
    renew_crl(pki_in(folder), NOW + 172 * DAY, unasked)

    assert _revoked(folder) == set()


def test_a_revocation_can_sign_the_regular_list(folder: PkiFolder) -> None:
    """If a list is due, the one that a revocation signs counts: a revocation each 20 days does not keep old entries."""
    ada = added(folder, "ada")[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    is_listed = {}
    for days in range(20, 160, 20):
        added(folder, f"u{days}", now=NOW + days * DAY)
        revoke(pki_in(folder), [f"u{days}.laptop"], Reason.LOST, NOW + days * DAY, unasked)
        is_listed[days] = ada.serial in _revoked(folder)

    assert is_listed == {20: True, 40: True, 60: True, 80: True, 100: True, 120: True, 140: False}


@pytest.mark.parametrize(("days", "signs"), [(0, False), (44, False), (46, True), (120, True)])
def test_a_revocation_list_is_renewed_after_half_of_its_life(days: int, folder: PkiFolder, *, signs: bool) -> None:
    """Its number grows, so that gateways keep the newest."""
    later = NOW + days * DAY

    assert renew_crl(pki_in(folder), later, unasked) is signs

    assert crl_number(parse_crls(folder.lists.read_text())[0]) == (2 if signs else 1)
    assert current_crl(pki_in(folder), later) is not None


def test_issuing_a_certificate_renews_an_old_revocation_list(folder: PkiFolder) -> None:
    """An operator who adds laptops regularly always has a fresh list."""
    added(folder, "ada", now=NOW + 60 * DAY)

    assert current_crl(pki_in(folder), NOW + 60 * DAY) is not None


def test_a_revocation_list_older_than_the_audit_log_is_not_deployed(folder: PkiFolder) -> None:
    """A run that was killed leaves it; with it, revoked laptops could connect. The next run signs a new one."""
    added(folder, "ada")
    older = folder.lists.read_text()
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    folder.lists.write_text(older)

    with pytest.raises(InputError, match="not the newest revocation list"):
        deployable_crl(pki_in(folder), NOW)

    assert renew_crl(pki_in(folder), NOW, unasked)
    assert len(parse_crls(deployable_crl(pki_in(folder), NOW))[0]) == 1


@pytest.mark.parametrize(("days", "message"), [(91, "expired on 2027-02-19"), (88, "in 2 days")])
def test_a_revocation_list_near_its_end_is_not_deployed(days: int, message: str, folder: PkiFolder) -> None:
    """Gateways would reject all laptops."""
    with pytest.raises(InputError, match=message):
        deployable_crl(pki_in(folder), NOW + days * DAY)

    assert deployable_crl(pki_in(folder), NOW + 86 * DAY)


def test_an_authority_is_created_once(folder: PkiFolder) -> None:
    """A second one would end every profile."""
    before = folder.authority.read_bytes()

    with pytest.raises(InputError, match="already has an authority"):
        begun_in(folder.path.parent)

    assert folder.authority.read_bytes() == before


def test_without_an_authority_the_error_names_vpn_init(tmp_path: Path) -> None:
    """All commands that need one raise it."""
    with pytest.raises(NoAuthority) as error:
        pki_in(PkiFolder(tmp_path / "fleet.pki"))

    assert "vpn init" in error.value.fix


def test_serials_grow_and_never_repeat(folder: PkiFolder) -> None:
    """Also for a name that was revoked and is issued again."""
    serials = [certificate.serial for certificate in added(folder, "ada", "grace")]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LEFT, NOW, unasked)
    serials += [certificate.serial for certificate in added(folder, "ada")]
    serials += [certificate.serial for certificate in renew(pki_in(folder), [laptop("grace")], NOW, unasked)]

    assert sorted(set(serials)) == serials
    assert _revoked(folder) == {serials[0]}


def test_serials_of_a_new_audit_log_do_not_repeat(tmp_path: Path) -> None:
    """Two authorities with the same history issue different serials."""
    first, second = (added(begun_in(_make_folder(tmp_path / name)), "ada")[0].serial for name in ("a", "b"))

    assert first != second


def test_a_renewed_laptop_keeps_its_slot(folder: PkiFolder) -> None:
    """Its address follows from the slot. The slot of a revoked laptop is free again."""
    added(folder, "ada", "grace")
    renewed = renew(pki_in(folder), [laptop("grace")], NOW, unasked)[0]
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)
    later = added(folder, "eve", "mallory")

    assert renewed.slot == 1
    assert [certificate.slot for certificate in later] == [0, 2]


def test_an_expired_certificate_frees_its_slot(folder: PkiFolder) -> None:
    """Otherwise pools fill with unused laptops. A laptop that returns gets its former slot if it is free."""
    added(folder, "ada", "grace")
    much_later = NOW + timedelta(days=200)

    eve = add(pki_in(folder), [laptop("eve")], much_later, unasked)[0]
    back = add(pki_in(folder), [laptop("grace"), laptop("ada")], much_later, unasked)

    assert (eve.slot, [certificate.slot for certificate in back]) == (0, [1, 2])


def test_a_second_certificate_for_the_same_laptop_is_rejected(folder: PkiFolder) -> None:
    """The message has the end date of the first, and the option for another device."""
    added(folder, "ada")

    with pytest.raises(InputError, match=r"ada\.laptop has a certificate until 2027-02-19") as error:
        added(folder, "ada")

    assert "--device" in error.value.fix


def test_a_certificate_without_a_stored_key_is_issued_again(folder: PkiFolder) -> None:
    """A run that was killed leaves it, and it cannot be used."""
    first = added(folder, "ada")[0]
    (folder.keys / "ada.laptop.pem").unlink()

    second = added(folder, "ada")[0]

    assert second.serial != first.serial
    assert second.slot == first.slot


def test_an_expired_certificate_can_be_issued_again(folder: PkiFolder) -> None:
    """A person who returns after months is added with the same command."""
    added(folder, "ada")

    assert added(folder, "ada", now=NOW + 91 * DAY)


def test_renewing_makes_a_new_key_and_keeps_the_old_certificate_valid(folder: PkiFolder) -> None:
    """The person has time to replace the profile."""
    old = added(folder, "ada")[0]
    new = renew(pki_in(folder), [laptop("ada")], NOW + 60 * DAY, unasked)[0]

    assert new.key != old.key
    assert [valid.serial for valid in pki_in(folder).certificates.valid(NOW + 61 * DAY)] == [old.serial, new.serial]
    assert _revoked(folder) == set()


def test_only_a_laptop_with_a_certificate_is_renewed(folder: PkiFolder) -> None:
    """A laptop that was never added or was revoked is an error."""
    added(folder, "ada")
    revoke(pki_in(folder), ["ada.laptop"], Reason.LOST, NOW, unasked)

    for user in ("ada", "grace"):
        with pytest.raises(InputError, match="no certificate to renew"):
            renew(pki_in(folder), [laptop(user)], NOW, unasked)


def test_a_second_operator_at_the_same_time_gets_an_error(folder: PkiFolder) -> None:
    """The error names the process of the first, and nothing is changed."""
    pki, before = pki_in(folder), folder.journal.read_bytes()

    with held(folder.journal), pytest.raises(HeldError, match="process"):
        add(pki, [laptop("ada")], NOW, unasked)

    assert folder.journal.read_bytes() == before


def test_changes_of_another_operator_are_kept(folder: PkiFolder) -> None:
    """Each change starts from the present content of the folder."""
    stale = pki_in(folder)
    added(folder, "ada")

    add(stale, [laptop("grace")], NOW, unasked)

    assert set(pki_in(folder).certificates.holders()) == {"ada.laptop", "grace.laptop"}


def test_a_clock_behind_the_audit_log_signs_nothing(folder: PkiFolder) -> None:
    """A new certificate would start before the newest entry, and end too early."""
    added(folder, "ada")

    with pytest.raises(MachineError, match="clock"):
        added(folder, "grace", now=NOW - timedelta(seconds=1))

    assert added(folder, "grace", now=NOW)


def _make_folder(path: Path) -> Path:
    path.mkdir()
    return path
