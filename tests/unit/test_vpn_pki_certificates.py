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

from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from tests.support.needs import need_program
from vpn.authority import authority_under, new_authority, new_root
from vpn.certificate import Issuer, certificate_text, common_name, issue, new_key
from vpn.judgement import Level, authority_faults, certificate_faults, list_faults
from vpn.pki import bundle_of
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason, signed_list
from vpn.signing import revoke
from vpn.subject import Use, gateway, laptop

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
