"""Private keys and the certificates beside them: whose they are, how they are kept, and under what names."""

import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import InputError
from bedplate.plan.laptops import NAME_PREFIX
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from tests.support.needs import need_program
from vpn.bundle import Bundle, parse_bundle
from vpn.passphrase import is_locked
from vpn.pki import bundle_of
from vpn.pki_folder import PkiFolder
from vpn.serving import check_serves
from vpn.signing import add
from vpn.subject import GATEWAY_PREFIX, Subject, Use, gateway, laptop

GATEWAY = gateway("cellar", "lab.internal")


def test_keys_are_their_owners_alone(folder: PkiFolder) -> None:
    """The folder of keys too; and nothing outside it holds one."""
    added(folder, "ada")

    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.keys.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.keys.stat().st_mode) == 0o700
    public = [file for file in folder.path.iterdir() if file.is_file()]
    assert not [file for file in public if "PRIVATE" in file.read_text() or "OpenVPN" in file.read_text()]
    assert "keys/" in (folder.path / ".gitignore").read_text().splitlines()


def test_keys_are_locked_by_a_passphrase_where_one_is_given(tmp_path: Path) -> None:
    """All private keys, at rest; a wrong passphrase opens none, and is not repeated."""
    folder = begun_in(tmp_path, lock=b"correct horse")
    add(pki_in(folder), [laptop("ada")], NOW, lambda: b"correct horse")

    assert is_locked((folder.keys / "authority.pem").read_text())
    assert is_locked(parse_bundle((folder.keys / "ada.laptop.pem").read_text()).key)
    assert not is_locked(bundle_of(pki_in(folder), "ada.laptop", lambda: b"correct horse").key)
    with pytest.raises(InputError, match="does not open") as refused:
        add(pki_in(folder), [laptop("grace")], NOW, lambda: b"wrong horse")
    assert "horse" not in str(vars(refused.value))


def test_a_passphrase_is_slow_to_guess(tmp_path: Path) -> None:
    """600,000 rounds of PBKDF2 with SHA-256, in a format that openssl reads."""
    need_program("openssl")
    folder = begun_in(tmp_path, lock=b"correct horse")
    file = ["-in", str(folder.keys / "authority.pem")]

    told = subprocess.run(["openssl", "asn1parse", *file], capture_output=True, text=True, check=True).stdout

    assert [word for word in ("PBKDF2", "hmacWithSHA256", "aes-256-cbc", f":{600_000:06X}") if word not in told] == []
    subprocess.run(["openssl", "pkey", *file, "-passin", "pass:correct horse", "-noout"], check=True)


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o644, 0o710])
def test_a_key_that_others_may_read_is_refused(mode: int, folder: PkiFolder) -> None:
    """Who reads the authority's key signs for it; the fix is the command."""
    file = folder.keys / "authority.pem"
    file.chmod(mode)

    with pytest.raises(InputError, match="others may read or write") as refused:
        added(folder, "ada")

    assert refused.value.fix == f"chmod 600 {file}"
    file.chmod(0o700)
    assert added(folder, "ada")


def test_a_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    """Everything it signed would be worth nothing."""
    mine, other = begun_in(_made(tmp_path / "mine")), begun_in(_made(tmp_path / "other"))
    (mine.keys / "authority.pem").write_bytes((other.keys / "authority.pem").read_bytes())

    with pytest.raises(InputError, match="another authority"):
        added(mine, "ada")


def test_a_bundle_says_nothing_of_itself(folder: PkiFolder) -> None:
    """A traceback or a log that holds one holds no key."""
    added(folder, "ada")

    assert "PRIVATE" not in repr(bundle_of(pki_in(folder), "ada.laptop", unasked))


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: bundle.key,
        lambda bundle: bundle.certificate,
        lambda bundle: bundle.text[:-20],
        lambda bundle: f"# ada\n{bundle.text}",
        lambda _bundle: "",
    ],
    ids=["no-certificate", "no-key", "cut", "edited", "empty"],
)
def test_a_spoilt_file_of_a_key_is_refused(change: Callable[[Bundle], str], folder: PkiFolder) -> None:
    """It is told what to do, and nothing of what the file holds."""
    added(folder, "ada")
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    file = folder.keys / "ada.laptop.pem"
    file.write_text(change(bundle))

    with pytest.raises(InputError, match="no certificate with its key") as refused:
        bundle_of(pki_in(folder), "ada.laptop", unasked)

    assert "BEGIN" not in str(vars(refused.value))


def _flipped(text: str) -> str:
    """Return a PEM text with another letter in the middle of its data."""
    head, first, *lines = text.splitlines(keepends=True)
    return "".join((head, first.swapcase(), *lines))


def test_a_damaged_tls_crypt_key_is_refused(folder: PkiFolder) -> None:
    """No gateway would accept a laptop's key made from it; given to a gateway, it would lock all laptops out."""
    add(pki_in(folder), [GATEWAY], NOW, unasked)
    file = folder.keys / "tls-crypt-v2.pem"
    file.write_text(_flipped(file.read_text()))
    bundle = bundle_of(pki_in(folder), GATEWAY.name, unasked)

    with pytest.raises(InputError, match="tls-crypt-v2 key is damaged"):
        added(folder, "ada")
    check_serves("the gateway", bundle, GATEWAY, pki_in(folder), NOW)
    damaged = replace(bundle, tls_crypt=_flipped(bundle.tls_crypt))
    with pytest.raises(InputError, match="damaged tls-crypt-v2 key"):
        check_serves("the gateway", damaged, GATEWAY, pki_in(folder), NOW)


def test_gateways_share_a_hiding_key_and_laptops_do_not(folder: PkiFolder) -> None:
    """Each laptop has its own, which every gateway knows."""
    at_home = [gateway(place, "lab.internal") for place in ("us-west-2", "cellar")]
    add(pki_in(folder), [*at_home, laptop("ada"), laptop("grace"), Subject("gate.cellar", Use.PEER)], NOW, unasked)

    def hiding(name: str) -> str:
        return bundle_of(pki_in(folder), name, unasked).tls_crypt

    assert hiding(at_home[0].name) == hiding(at_home[1].name)
    assert hiding("ada.laptop") != hiding("grace.laptop")
    assert hiding("gate.cellar") == ""


@pytest.mark.parametrize(
    "user", ["Ada", "../../root", "a/b", ".", "", "-ada", "a" * 33, "adä", "ada\n", "ada.x", "a\0"]
)
def test_no_name_leads_out_of_the_folder(user: str) -> None:
    """Nor do two differ by case alone."""
    with pytest.raises(InputError):
        laptop(user)
    with pytest.raises(InputError):
        laptop("ada", user)


@pytest.mark.parametrize("name", ["", "Gateway.cellar", "gateway..lab", ".lab", "a b", "a/b", "a" * 65])
def test_no_certificate_names_what_is_no_name(name: str) -> None:
    """What gateways are called comes from the plan, and is held to the same; 64 letters are the most."""
    with pytest.raises(InputError, match="no name for a certificate"):
        Subject(name, Use.SERVER)

    assert len(Subject("a" * 64, Use.SERVER).name) == 64


def test_nobody_is_called_like_a_gateway() -> None:
    """Laptops know a gateway by how its name begins."""
    with pytest.raises(InputError, match="laptops know gateways by it"):
        laptop("gateway")

    assert laptop("gatewayer").name == "gatewayer.laptop"
    assert GATEWAY_PREFIX == NAME_PREFIX


def test_a_certificate_is_of_the_key_beside_it(folder: PkiFolder) -> None:
    """The journal's fingerprint too."""
    entry = added(folder, "ada")[0]
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())

    assert load_pem_private_key(bundle.key.encode(), None).public_key() == certificate.public_key()
    assert (certificate.serial_number, certificate.not_valid_after_utc) == (entry.serial, entry.until)


def _made(path: Path) -> Path:
    path.mkdir()
    return path
