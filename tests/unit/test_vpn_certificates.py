"""Certificates, lists and their judge: ours pass openssl and the judge; each planted fault is told with its figure."""

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
from bedplate.hold import held
from tests.testlab.keys.authority import NOW, added, begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.authority import (
    Level,
    Reason,
    authority_faults,
    authority_under,
    certificate_faults,
    list_faults,
    new_authority,
    new_root,
    number_of,
    read_lists,
    signed_list,
)
from vpn.certificates import Issuer, Use, certificate_text, common_name, gateway, issue, laptop, new_key
from vpn.pki import NoAuthority, PkiFolder, bundle_of, current_list, deployable_lists
from vpn.signing import add, relist, renew, revoke

DAY = timedelta(days=1)
AUTHORITY = new_authority("lab", NOW)


def _verified(folder: PkiFolder, name: str, purpose: str, now: datetime) -> str:
    """Return what openssl says of a certificate at a moment, with the certificate and list that daemons get."""
    need_program("openssl")
    proof, trusted = folder.path / f"{name}.crt", folder.path / "ca.crt"
    trusted.write_text(pki_in(folder).authority.trusted)
    proof.write_text(bundle_of(pki_in(folder), name, unasked).certificate)
    options = ("-x509_strict", "-crl_check_all", "-purpose", purpose, "-attime", str(int(now.timestamp())))
    files = ("-CAfile", str(trusted), "-CRLfile", str(folder.lists), str(proof))
    done = subprocess.run(["openssl", "verify", *options, *files], capture_output=True, text=True, check=False)
    return "OK" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("is_below", [False, True], ids=["alone", "under a root"])
def test_openssl_takes_what_is_issued(tmp_path: Path, *, is_below: bool) -> None:
    """For its own use alone, from five minutes before it was made to its end, and not once it was revoked."""
    folder = begun_in(tmp_path, root=new_root("lab", NOW) if is_below else None)
    end = added(folder, "ada", "grace")[0].until
    revoke(pki_in(folder), ["grace.laptop"], Reason.LOST, NOW, unasked)

    assert _verified(folder, "ada.laptop", "sslclient", NOW - timedelta(minutes=4)) == "OK"
    assert _verified(folder, "ada.laptop", "sslclient", end - timedelta(seconds=1)) == "OK"
    assert "expired" in _verified(folder, "ada.laptop", "sslclient", end + timedelta(seconds=1))
    assert "not yet valid" in _verified(folder, "ada.laptop", "sslclient", NOW - timedelta(minutes=6))
    assert "purpose" in _verified(folder, "ada.laptop", "sslserver", NOW)
    assert "revoked" in _verified(folder, "grace.laptop", "sslclient", NOW)


def test_a_roots_key_is_nowhere_in_the_folder(tmp_path: Path) -> None:
    """The operator keeps it elsewhere. Its certificate is in authority.crt, and no daemon trusts it."""
    root = new_root("lab", NOW)
    folder = begun_in(tmp_path, root=root)

    assert {file.name for file in folder.keys.iterdir()} == {"authority.pem", "tls-crypt-v2.pem"}
    assert folder.authority.read_text().endswith(certificate_text(root.certificate))
    assert certificate_text(root.certificate) not in pki_in(folder).authority.trusted


def test_no_certificate_outlives_its_authority() -> None:
    """It would be refused in its last days, and nobody would know why."""
    late = AUTHORITY.certificate.not_valid_after_utc - DAY

    made = issue(AUTHORITY, laptop("ada"), new_key().public_key(), 1, late)

    assert made.not_valid_after_utc == AUTHORITY.certificate.not_valid_after_utc


def test_an_authority_of_the_fleet_signs_no_other_authority() -> None:
    """Its key lies beside the fleet file: who takes it gets no further."""
    own = authority_under(new_root("lab", NOW), "lab", NOW).certificate

    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def _foreign(  # noqa: PLR0913  what may be planted
    *,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    since: datetime = NOW,
    life: timedelta = timedelta(days=90),
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    signer: Issuer = AUTHORITY,
    ca: bool = False,
) -> x509.Certificate:
    """Return a laptop's certificate as somebody else might have made it."""
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


def _sha1() -> x509.Certificate:
    """Return a certificate signed with SHA-1, which the library no longer makes: the digest's name is what is read."""
    need_program("openssl")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-sha1", "-newkey", "rsa:3072", "-noenc", "-keyout", "/dev/null", "-subj", "/CN=x"],
        capture_output=True,
        check=True,
    )
    return x509.load_pem_x509_certificate(made.stdout)


PLANTED: dict[str, tuple[Callable[[], x509.Certificate], str]] = {
    "ended": (lambda: _foreign(since=NOW - 91 * DAY), "ended on 2026-11-20"),
    "not yet": (lambda: _foreign(since=NOW + DAY), "begins on 2026-11-22 only"),
    "short RSA": (
        lambda: _foreign(key=_rsa(1024)),
        "RSA key of 1024 bits; 3072 are the least",
    ),
    "short curve": (lambda: _foreign(key=ec.generate_private_key(ec.SECP192R1())), "192 bits"),
    "SHA-1": (_sha1, "signed with SHA1"),
    "wrong use": (lambda: _foreign(use=ExtendedKeyUsageOID.SERVER_AUTH), "may not be used as a client"),
    "authority": (lambda: _foreign(ca=True), "is of an authority"),
    "foreign authority": (lambda: _foreign(signer=new_authority("lab", NOW)), "not issued by CN=lab VPN authority"),
    "too long": (lambda: _foreign(life=826 * DAY), "lasts 826 days; 825 are the most"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_foreign_certificate_with_a_fault_is_told(name: str) -> None:
    """With the date or the figure."""
    make, message = PLANTED[name]

    found = certificate_faults(make(), Use.CLIENT, AUTHORITY.certificate, NOW)

    assert [fault for fault in found if message in fault.message and fault.level is Level.ERROR]
    assert name == "SHA-1" or len(found) == 1


@pytest.mark.parametrize("days", [90, 825])
def test_a_foreign_certificate_without_a_fault_is_good(days: int) -> None:
    """The nearest good ones, beside our own."""
    own = issue(AUTHORITY, gateway("cellar", "lab.internal"), new_key().public_key(), 1, NOW)

    for key in (_rsa(3072), ec.generate_private_key(ec.SECP256R1())):
        assert certificate_faults(_foreign(life=days * DAY, key=key), Use.CLIENT, AUTHORITY.certificate, NOW) == ()
    assert certificate_faults(own, Use.SERVER, AUTHORITY.certificate, NOW) == ()


def test_a_root_that_cannot_sign_is_told() -> None:
    """Of another key, no authority, or ended; a good one beside them."""
    root = new_root("lab", NOW)

    assert authority_faults(root, NOW) == ()
    assert "key beside it" in authority_faults(Issuer(root.certificate, new_key()), NOW)[0].message
    assert "not of an authority" in authority_faults(Issuer(_foreign(), new_key()), NOW)[0].message
    assert "ended" in authority_faults(root, NOW + 8000 * DAY)[0].message


@pytest.mark.parametrize(
    ("days", "found"),
    [(0, []), (75, []), (77, [Level.WARNING]), (86, [Level.WARNING]), (88, [Level.ERROR]), (91, [Level.ERROR])],
)
def test_a_list_near_its_end_is_told(days: int, found: list[Level]) -> None:
    """A warning from 14 days on, an error from 3 on."""
    made = signed_list(AUTHORITY, (), 1, NOW)

    assert [fault.level for fault in list_faults(made, AUTHORITY.certificate, NOW + days * DAY)] == found


def test_a_list_of_another_authority_is_told() -> None:
    """Also where both are called alike."""
    made = signed_list(new_authority("lab", NOW), (), 1, NOW)

    assert "is of another authority" in list_faults(made, AUTHORITY.certificate, NOW)[0].message


def test_a_list_from_the_future_is_told() -> None:
    """Gateways would refuse it until then."""
    made = signed_list(AUTHORITY, (), 1, NOW + DAY)

    assert "begins on 2026-11-22 only" in list_faults(made, AUTHORITY.certificate, NOW)[0].message


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
