"""Private keys and certificates: storage, encryption, names, and the keys of tunnels."""

import base64
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import HeldError, InputError
from bedplate.files import held
from bedplate.plan.laptops import NAME_PREFIX
from tests.testlab.fleets.variants import ATTIC, CELLAR, CONNECTED_SITES_TEXT, connected_sites_plan
from tests.testlab.keys.authority import NOW, added, begun_in, pki_in, unasked
from tests.testlab.run import need_program
from vpn.authority import Reason, new_root
from vpn.certificates import (
    GATEWAY_PREFIX,
    Bundle,
    Passphrase,
    Subject,
    Use,
    client_key,
    gateway_subject,
    is_encrypted,
    laptop,
    new_server_key,
    parse_bundle,
)
from vpn.gateways import (
    due_peers,
    load_shared_keys,
    make_shared_keys,
    pair_key_name,
    peer_subjects,
    tunnel_certificates,
)
from vpn.pki import Pki, PkiFolder, bundle_of
from vpn.signing import add, check_bundle, issue_certificates, revoke
from vpn.sites.gateway import SharedKey, TunnelCertificate, proof_or_error

GATEWAY = gateway_subject("cellar", "lab.internal")


def test_only_their_owner_can_read_keys(folder: PkiFolder) -> None:
    """This includes the folder of keys; no key is outside it."""
    added(folder, "ada")

    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.keys.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.keys.stat().st_mode) == 0o700
    public = [file for file in folder.path.iterdir() if file.is_file()]
    assert not [file for file in public if "PRIVATE" in file.read_text() or "OpenVPN" in file.read_text()]
    assert "keys/" in (folder.path / ".gitignore").read_text().splitlines()


def test_a_passphrase_encrypts_all_private_keys(tmp_path: Path) -> None:
    """A wrong passphrase opens none, and the error does not contain it."""
    folder = begun_in(tmp_path, lock=b"correct horse")
    add(pki_in(folder), [laptop("ada")], NOW, lambda: b"correct horse")

    assert is_encrypted((folder.keys / "authority.pem").read_text())
    assert is_encrypted(parse_bundle((folder.keys / "ada.laptop.pem").read_text()).key)
    assert not is_encrypted(bundle_of(pki_in(folder), "ada.laptop", lambda: b"correct horse").key)
    with pytest.raises(InputError, match="wrong passphrase for") as error:
        add(pki_in(folder), [laptop("grace")], NOW, lambda: b"wrong horse")
    assert "horse" not in str(vars(error.value))


def test_keys_are_encrypted_with_600_000_rounds_of_pbkdf2(tmp_path: Path) -> None:
    """The openssl program reads the format."""
    need_program("openssl")
    folder = begun_in(tmp_path, lock=b"correct horse")
    file = ["-in", str(folder.keys / "authority.pem")]

    output = subprocess.run(["openssl", "asn1parse", *file], capture_output=True, text=True, check=True).stdout

    for word in ("PBKDF2", "hmacWithSHA256", "aes-256-cbc", f":{600_000:06X}"):
        assert word in output
    subprocess.run(["openssl", "pkey", *file, "-passin", "pass:correct horse", "-noout"], check=True)


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o644, 0o710])
def test_a_key_that_other_users_can_access_is_rejected(mode: int, folder: PkiFolder) -> None:
    """The fix is the chmod command."""
    file = folder.keys / "authority.pem"
    file.chmod(mode)

    with pytest.raises(InputError, match="other users can read or write") as error:
        added(folder, "ada")

    assert error.value.fix == f"chmod 600 {file}"
    file.chmod(0o700)
    assert added(folder, "ada")


def test_a_key_of_another_authority_is_rejected(tmp_path: Path) -> None:
    """Certificates signed with it would not be valid."""
    own, other = begun_in(_make_folder(tmp_path / "own")), begun_in(_make_folder(tmp_path / "other"))
    (own.keys / "authority.pem").write_bytes((other.keys / "authority.pem").read_bytes())

    with pytest.raises(InputError, match=r"does not match authority\.crt"):
        added(own, "ada")


def test_the_repr_of_a_bundle_contains_no_key(folder: PkiFolder) -> None:
    """A traceback or log shows no key."""
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
def test_a_damaged_key_file_is_rejected(change: Callable[[Bundle], str], folder: PkiFolder) -> None:
    """The error has a fix, and nothing of the file."""
    added(folder, "ada")
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    file = folder.keys / "ada.laptop.pem"
    file.write_text(change(bundle))

    with pytest.raises(InputError, match="not a certificate with its private key") as error:
        bundle_of(pki_in(folder), "ada.laptop", unasked)

    assert "BEGIN" not in str(vars(error.value))


def _flip(text: str) -> str:
    """Return a PEM text with a change in the middle of its data."""
    head, first, *lines = text.splitlines(keepends=True)
    return "".join((head, first.swapcase(), *lines))


def test_a_damaged_tls_crypt_key_is_rejected(folder: PkiFolder) -> None:
    """Gateways would reject laptop keys made from it; on a gateway it would reject all laptops."""
    add(pki_in(folder), [GATEWAY], NOW, unasked)
    file = folder.keys / "tls-crypt-v2.pem"
    file.write_text(_flip(file.read_text()))
    bundle = bundle_of(pki_in(folder), GATEWAY.name, unasked)

    with pytest.raises(InputError, match="tls-crypt-v2 key is damaged"):
        added(folder, "ada")
    check_bundle("the gateway", bundle, GATEWAY, pki_in(folder), NOW)
    damaged = replace(bundle, tls_crypt=_flip(bundle.tls_crypt))
    with pytest.raises(InputError, match="damaged tls-crypt-v2 key"):
        check_bundle("the gateway", damaged, GATEWAY, pki_in(folder), NOW)


def test_gateways_share_a_tls_crypt_key_and_laptops_do_not(folder: PkiFolder) -> None:
    """Each laptop has its own, which every gateway accepts."""
    gateways = [gateway_subject(place, "lab.internal") for place in ("us-west-2", "cellar")]
    add(pki_in(folder), [*gateways, laptop("ada"), laptop("grace"), Subject("gate.cellar", Use.PEER)], NOW, unasked)

    def tls_crypt(name: str) -> str:
        return bundle_of(pki_in(folder), name, unasked).tls_crypt

    assert tls_crypt(gateways[0].name) == tls_crypt(gateways[1].name)
    assert tls_crypt("ada.laptop") != tls_crypt("grace.laptop")
    assert tls_crypt("gate.cellar") == ""


@pytest.mark.parametrize(
    "user", ["Ada", "../../root", "a/b", ".", "", "-ada", "a" * 33, "adä", "ada\n", "ada.x", "a\0"]
)
def test_names_of_users_and_devices_are_restricted(user: str) -> None:
    """They cannot leave the folder of keys or differ only in case."""
    with pytest.raises(InputError):
        laptop(user)
    with pytest.raises(InputError):
        laptop("ada", user)


@pytest.mark.parametrize("name", ["", "Gateway.cellar", "gateway..lab", ".lab", "a b", "a/b", "a" * 65])
def test_certificate_names_are_restricted(name: str) -> None:
    """The same rules apply to gateways, with at most 64 characters."""
    with pytest.raises(InputError, match="not a valid certificate name"):
        Subject(name, Use.SERVER)

    assert len(Subject("a" * 64, Use.SERVER).name) == 64


def test_a_user_name_cannot_be_the_prefix_of_gateways() -> None:
    """Laptops recognize a gateway by this prefix."""
    with pytest.raises(InputError, match="reserved for gateways"):
        laptop("gateway")

    assert laptop("gatewayer").name == "gatewayer.laptop"
    assert GATEWAY_PREFIX == NAME_PREFIX


def test_a_certificate_matches_its_key_and_its_entry(folder: PkiFolder) -> None:
    """The audit log has its serial and end date."""
    entry = added(folder, "ada")[0]
    bundle = bundle_of(pki_in(folder), "ada.laptop", unasked)
    certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())

    assert load_pem_private_key(bundle.key.encode(), None).public_key() == certificate.public_key()
    assert (certificate.serial_number, certificate.not_valid_after_utc) == (entry.serial, entry.until)


def _make_folder(path: Path) -> Path:
    path.mkdir()
    return path


SERVER = new_server_key()


def _payload(text: str) -> bytes:
    return base64.b64decode("".join(text.splitlines()[1:-1]))


def test_every_laptop_key_is_new() -> None:
    """Also for the same laptop."""
    assert client_key(SERVER, "ada.laptop") != client_key(SERVER, "ada.laptop")


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519 AAAA", client_key(SERVER, "ada.laptop")], ids=["none", "ssh", "client"]
)
def test_a_laptop_key_needs_a_server_key(text: str) -> None:
    """Another file is an error that does not show its content."""
    with pytest.raises(InputError, match="not an OpenVPN tls-crypt-v2 server key"):
        client_key(text, "ada.laptop")


def test_tls_crypt_keys_have_the_format_of_openvpn(tmp_path: Path) -> None:
    """`openvpn --genkey` makes keys of the same length."""
    need_program("openvpn")
    server, client = tmp_path / "server.key", tmp_path / "client.key"
    subprocess.run(["openvpn", "--genkey", "tls-crypt-v2-server", server], check=True, capture_output=True)
    command = ["openvpn", "--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(client)]
    metadata = base64.b64encode(b"ada.laptop").decode()
    subprocess.run([*command, metadata], check=True, capture_output=True)

    assert len(_payload(server.read_text())) == len(_payload(SERVER))
    assert len(_payload(client.read_text())) == len(_payload(client_key(SERVER, "ada.laptop")))


FIRST, SECOND = frozenset({"us-west-2", "eu-north-1"}), frozenset({"us-west-2", "us-east-1"})
THIRD = frozenset({"eu-north-1", "us-east-1"})
PASSPHRASE = b"a passphrase of some length"


def test_a_shared_key_is_made_once(tmp_path: Path) -> None:
    """A second run makes only the key of a new pair; pairs have different keys."""
    pki = pki_in(begun_in(tmp_path))

    assert make_shared_keys(pki, [FIRST], unasked) == (FIRST,)
    first = load_shared_keys(pki, [FIRST, SECOND], unasked)
    assert make_shared_keys(pki, [FIRST, SECOND], unasked) == (SECOND,)

    both = load_shared_keys(pki, [FIRST, SECOND], unasked)
    assert first == {FIRST: both[FIRST]}
    assert both[FIRST] != both[SECOND]
    assert {len(key.secret) for key in both.values() if isinstance(key, SharedKey)} == {48}


def test_shared_keys_are_replaced_with_anew(tmp_path: Path) -> None:
    """Only those of the given pairs."""
    pki = pki_in(begun_in(tmp_path))
    make_shared_keys(pki, [FIRST, SECOND], unasked)
    before = load_shared_keys(pki, [FIRST, SECOND], unasked)

    assert set(make_shared_keys(pki, [FIRST], unasked, anew=True)) == {FIRST}

    after = load_shared_keys(pki, [FIRST, SECOND], unasked)
    assert after[FIRST] != before[FIRST]
    assert after[SECOND] == before[SECOND]


def test_shared_keys_are_encrypted_like_the_authoritys_key(tmp_path: Path) -> None:
    """With the same passphrase; without it nothing is read or made."""
    pki = pki_in(begun_in(tmp_path, lock=PASSPHRASE))

    make_shared_keys(pki, [FIRST], lambda: PASSPHRASE)

    text = pki.store.read(pair_key_name(FIRST))
    assert text is not None
    assert is_encrypted(text)
    assert set(load_shared_keys(pki, [FIRST], lambda: PASSPHRASE)) == {FIRST}
    (error,) = load_shared_keys(pki, [FIRST], lambda: b"another passphrase").values()
    assert isinstance(error, InputError)
    assert error.what == "wrong passphrase for the key between eu-north-1 and us-west-2"
    with pytest.raises(InputError, match="wrong passphrase for the authority"):
        make_shared_keys(pki, [SECOND], lambda: b"another passphrase")


def test_the_same_key_for_two_pairs_is_rejected(tmp_path: Path) -> None:
    """The error names both and the command for new keys, and does not show the key; a third pair is not affected."""
    pki = pki_in(begun_in(tmp_path))
    make_shared_keys(pki, [FIRST, SECOND, THIRD], unasked)
    text = pki.store.read(pair_key_name(FIRST)) or ""
    pki.store.write({pair_key_name(SECOND): text})

    keys = load_shared_keys(pki, [FIRST, SECOND, THIRD], unasked)

    message = "tunnel.eu-north-1.us-west-2 and tunnel.us-east-1.us-west-2 are the same key"
    assert [str(keys[pair]) for pair in (FIRST, SECOND)] == [message, message]
    assert isinstance(keys[THIRD], SharedKey)
    assert make_shared_keys(pki, [FIRST, SECOND], unasked, anew=True) == (FIRST, SECOND)
    assert all(isinstance(key, SharedKey) for key in load_shared_keys(pki, [FIRST, SECOND], unasked).values())


def test_a_damaged_key_does_not_affect_other_pairs(tmp_path: Path) -> None:
    """The error names its two gateways, and does not show the file."""
    pki = pki_in(begun_in(tmp_path))
    make_shared_keys(pki, [FIRST, SECOND], unasked)
    pki.store.write({pair_key_name(FIRST): "half of a\n"})

    keys = load_shared_keys(pki, [FIRST, SECOND], unasked)

    assert str(keys[FIRST]) == "the key between eu-north-1 and us-west-2 is not a private key in PEM"
    assert isinstance(keys[SECOND], SharedKey)


def test_no_key_is_made_while_another_process_signs(tmp_path: Path) -> None:
    """Two keys for one pair would not match."""
    pki = pki_in(begun_in(tmp_path))

    with held(pki.folder.journal), pytest.raises(HeldError):
        make_shared_keys(pki, [FIRST], unasked)


def test_a_shared_key_is_named_by_both_gateways() -> None:
    """In alphabetical order; no laptop or gateway can have this name."""
    assert pair_key_name(FIRST) == "tunnel.eu-north-1.us-west-2"
    for user, device in (("tunnel", "eu-north-1.us-west-2"), ("tunnel.eu-north-1", "us-west-2")):
        with pytest.raises(InputError):
            laptop(user, device)


PEERS = peer_subjects(connected_sites_plan(CONNECTED_SITES_TEXT + "vpn: {tunnels: {auth: certificates}}\n"))
NAME = PEERS[ATTIC].name
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return an authority that has issued certificates to both gateways."""
    folder = begun_in(tmp_path)
    issue_certificates(pki_in(folder), tuple(PEERS.values()), NOW, unasked)
    return folder


def _certificates(folder: PkiFolder, passphrase: Passphrase = unasked) -> Mapping[str, TunnelCertificate]:
    results = tunnel_certificates(pki_in(folder), PEERS, passphrase, NOW)
    return {place: result for place, result in results.items() if isinstance(result, TunnelCertificate)}


def test_each_gateway_with_a_tunnel_has_one_subject() -> None:
    """It has the gateway's name in the fleet's domain; tunnels with shared keys have none."""
    assert dict(PEERS) == {
        ATTIC: Subject("tunnels.attic.rooms.internal", Use.PEER),
        CELLAR: Subject("tunnels.cellar.rooms.internal", Use.PEER),
    }
    assert peer_subjects(connected_sites_plan()) == {}


def test_a_gateway_has_its_own_key_and_the_authoritys_certificate(folder: PkiFolder) -> None:
    """The revocation list is the authority's."""
    certificates = _certificates(folder)

    assert certificates[ATTIC].key != certificates[CELLAR].key
    assert certificates[ATTIC].authorities == (folder.authority.read_text(),)
    assert certificates[ATTIC].revoked == (folder.lists.read_text(),)
    assert "PRIVATE" not in repr(certificates)


def test_under_a_root_gateways_get_both_authorities_and_both_lists(tmp_path: Path) -> None:
    """StrongSwan checks the whole chain, and swanctl reads one certificate for each file."""
    folder = begun_in(tmp_path, root=new_root("lab", NOW))
    issue_certificates(pki_in(folder), tuple(PEERS.values()), NOW, unasked)

    certificates = _certificates(folder)[ATTIC]

    assert [len(texts) for texts in (certificates.authorities, certificates.revoked)] == [2, 2]
    assert [text.count("BEGIN") for text in (*certificates.authorities, *certificates.revoked)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("days", "lacking"), [(44, []), (46, [ATTIC, CELLAR]), (91, [ATTIC, CELLAR])])
def test_a_certificate_is_due_after_half_of_its_life(days: int, lacking: list[str], folder: PkiFolder) -> None:
    """Laptops and gateways of laptops are not included."""
    added(folder, "ada")
    issue_certificates(pki_in(folder), (gateway_subject("us-west-2", "rooms.internal"),), NOW, unasked)

    expected = due_peers(pki_in(folder).certificates, PEERS.values(), (), NOW + days * DAY)

    assert (expected.departed_laptops, expected.unused_gateways) == ((), ())
    assert expected.missing_certificates == tuple(PEERS[place] for place in lacking)


def test_a_gateway_without_a_tunnel_is_due_for_revocation(folder: PkiFolder) -> None:
    """Gateways with tunnels are not due."""
    assert due_peers(pki_in(folder).certificates, [PEERS[CELLAR]], (), NOW).unused_gateways == (PEERS[ATTIC].name,)


@pytest.fixture
def other_authority(tmp_path: Path) -> Pki:
    """Return another authority that has issued certificates to both gateways."""
    (tmp_path / "other").mkdir()
    folder = begun_in(tmp_path / "other")
    issue_certificates(pki_in(folder), tuple(PEERS.values()), NOW, unasked)
    return pki_in(folder)


def _of_laptop(pki: Pki, _: Pki) -> str:
    added(pki.folder, "ada")
    return pki.store.read("ada.laptop") or ""


def _of_other_authority(_: Pki, other: Pki) -> str:
    return other.store.read(NAME) or ""


def _of_other_gateway(pki: Pki, _: Pki) -> str:
    return pki.store.read(PEERS[CELLAR].name) or ""


def _revoked(pki: Pki, _: Pki) -> str:
    text = pki.store.read(NAME) or ""
    revoke(pki, [NAME], Reason.REPLACED, NOW, unasked)
    issue_certificates(pki, (PEERS[ATTIC],), NOW, unasked)
    return text


def _mixed(pki: Pki, _: Pki) -> str:
    own, other = (parse_bundle(pki.store.read(PEERS[place].name) or "") for place in (ATTIC, CELLAR))
    return own.certificate + other.key


def _damaged(pki: Pki, _: Pki) -> str:
    head, *lines = (pki.store.read(NAME) or "").splitlines(keepends=True)
    return "".join((head, lines[0].swapcase(), *lines[1:]))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (_of_laptop, "does not allow the use peer"),
        (_of_other_authority, "issued by"),
        (_of_other_gateway, r"is issued to CN=tunnels\.cellar\.rooms\.internal"),
        (_revoked, "was revoked"),
        (_mixed, "does not match the private key"),
        (_damaged, "cannot be read"),
        (lambda *_: "half of a\n", "not a certificate with its private key"),
    ],
    ids=["laptop", "stranger", "another", "revoked", "mixed", "damaged", "cut"],
)
def test_a_certificate_that_peers_would_reject_is_an_error(
    content: Callable[[Pki, Pki], str], why: str, folder: PkiFolder, other_authority: Pki
) -> None:
    """The error does not show the file, and the other gateway is not affected."""
    pki = pki_in(folder)
    pki.store.write({NAME: content(pki, other_authority)})

    results = tunnel_certificates(pki_in(folder), PEERS, unasked, NOW)

    assert isinstance(results[CELLAR], TunnelCertificate)
    with pytest.raises(InputError, match=why) as error:
        proof_or_error(results[ATTIC])
    assert "BEGIN" not in str(vars(error.value))


def test_an_expired_revocation_list_is_not_sent(folder: PkiFolder) -> None:
    """Gateways would reject all connections."""
    with pytest.raises(InputError, match=r"crl\.pem expired"):
        tunnel_certificates(pki_in(folder), PEERS, unasked, NOW + 91 * DAY)


def test_keys_are_encrypted_in_the_store_and_not_on_the_gateway(tmp_path: Path) -> None:
    """A gateway starts without a passphrase."""
    folder = begun_in(tmp_path, lock=PASSPHRASE)
    issue_certificates(pki_in(folder), tuple(PEERS.values()), NOW, lambda: PASSPHRASE)

    stored = pki_in(folder).store.read(PEERS[ATTIC].name) or ""
    certificates = _certificates(folder, lambda: PASSPHRASE)

    assert is_encrypted(parse_bundle(stored).key)
    assert not is_encrypted(certificates[ATTIC].key)
