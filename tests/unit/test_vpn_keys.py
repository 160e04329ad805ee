"""Private keys and the certificates beside them: whose they are, how they are kept, and under what names."""

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
from bedplate.hold import held
from bedplate.plan.laptops import NAME_PREFIX
from tests.testlab.fleets.variants import ATTIC, CELLAR, TEXT, direct_plan
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
    gateway,
    is_locked,
    laptop,
    new_server_key,
    parse_bundle,
)
from vpn.peers import due_peers, kept_keys, make_keys, name_of, papers_of, peer_subjects
from vpn.pki import Pki, PkiFolder, bundle_of
from vpn.signing import add, check_serves, issue_anew, revoke
from vpn.sites.gateway import Papers, SharedKey, given

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


SERVER = new_server_key()


def _payload(text: str) -> bytes:
    return base64.b64decode("".join(text.splitlines()[1:-1]))


def test_two_laptops_share_no_key() -> None:
    """Nor does one laptop twice."""
    assert client_key(SERVER, "ada.laptop") != client_key(SERVER, "ada.laptop")


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519 AAAA", client_key(SERVER, "ada.laptop")], ids=["none", "ssh", "client"]
)
def test_what_is_no_servers_key_wraps_nothing(text: str) -> None:
    """A mixed-up file is told, without what it holds."""
    with pytest.raises(InputError, match="no OpenVPN tls-crypt-v2 server key"):
        client_key(text, "ada.laptop")


def test_keys_are_as_long_as_openvpns_own(tmp_path: Path) -> None:
    """`openvpn --genkey` is the judge of the form; its own keys are read as ours are."""
    need_program("openvpn")
    server, client = tmp_path / "server.key", tmp_path / "client.key"
    subprocess.run(["openvpn", "--genkey", "tls-crypt-v2-server", server], check=True, capture_output=True)
    command = ["openvpn", "--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(client)]
    metadata = base64.b64encode(b"ada.laptop").decode()
    subprocess.run([*command, metadata], check=True, capture_output=True)

    assert len(_payload(server.read_text())) == len(_payload(SERVER))
    assert len(_payload(client.read_text())) == len(_payload(client_key(SERVER, "ada.laptop")))


ONE, OTHER = frozenset({"us-west-2", "eu-north-1"}), frozenset({"us-west-2", "us-east-1"})
THIRD = frozenset({"eu-north-1", "us-east-1"})
LOCK = b"a passphrase of some length"


def test_a_key_is_made_once(tmp_path: Path) -> None:
    """The second run makes the key of a new pair alone; no two pairs share one."""
    pki = pki_in(begun_in(tmp_path))

    assert make_keys(pki, [ONE], unasked) == (ONE,)
    first = kept_keys(pki, [ONE, OTHER], unasked)
    assert make_keys(pki, [ONE, OTHER], unasked) == (OTHER,)

    both = kept_keys(pki, [ONE, OTHER], unasked)
    assert first == {ONE: both[ONE]}
    assert both[ONE] != both[OTHER]
    assert {len(each.secret) for each in both.values() if isinstance(each, SharedKey)} == {48}


def test_keys_are_renewed_when_asked(tmp_path: Path) -> None:
    """All that are named, and no key is ever another's."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER], unasked)
    before = kept_keys(pki, [ONE, OTHER], unasked)

    assert set(make_keys(pki, [ONE], unasked, anew=True)) == {ONE}

    after = kept_keys(pki, [ONE, OTHER], unasked)
    assert after[ONE] != before[ONE]
    assert after[OTHER] == before[OTHER]


def test_a_key_is_locked_where_the_authoritys_is(tmp_path: Path) -> None:
    """By the same passphrase; without it nothing is read or made."""
    pki = pki_in(begun_in(tmp_path, lock=LOCK))

    make_keys(pki, [ONE], lambda: LOCK)

    text = pki.store.read(name_of(ONE))
    assert text is not None
    assert is_locked(text)
    assert set(kept_keys(pki, [ONE], lambda: LOCK)) == {ONE}
    (refused,) = kept_keys(pki, [ONE], lambda: b"another passphrase").values()
    assert isinstance(refused, InputError)
    assert refused.what == "the passphrase does not open the key between eu-north-1 and us-west-2"
    with pytest.raises(InputError, match="the passphrase does not open"):
        make_keys(pki, [OTHER], lambda: b"another passphrase")


def test_one_key_for_two_pairs_is_refused(tmp_path: Path) -> None:
    """Both are named, a third has its own; new keys are the way out, and nothing of the key is told."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER, THIRD], unasked)
    text = pki.store.read(name_of(ONE)) or ""
    pki.store.write({name_of(OTHER): text})

    found = kept_keys(pki, [ONE, OTHER, THIRD], unasked)

    told = "tunnel.eu-north-1.us-west-2 and tunnel.us-east-1.us-west-2 are one key"
    assert [str(found[pair]) for pair in (ONE, OTHER)] == [told, told]
    assert isinstance(found[THIRD], SharedKey)
    assert make_keys(pki, [ONE, OTHER], unasked, anew=True) == (ONE, OTHER)
    assert all(isinstance(each, SharedKey) for each in kept_keys(pki, [ONE, OTHER], unasked).values())


def test_a_damaged_key_costs_no_other_pair_its_own(tmp_path: Path) -> None:
    """It is named by its two gateways, and not shown."""
    pki = pki_in(begun_in(tmp_path))
    make_keys(pki, [ONE, OTHER], unasked)
    pki.store.write({name_of(ONE): "half of a\n"})

    found = kept_keys(pki, [ONE, OTHER], unasked)

    assert str(found[ONE]) == "nothing can be read as the key between eu-north-1 and us-west-2"
    assert isinstance(found[OTHER], SharedKey)


def test_two_who_make_keys_take_turns(tmp_path: Path) -> None:
    """While somebody else signs nothing is made: two keys for one pair would be none."""
    pki = pki_in(begun_in(tmp_path))

    with held(pki.folder.journal), pytest.raises(HeldError):
        make_keys(pki, [ONE], unasked)


def test_a_key_has_the_name_of_both_its_gateways() -> None:
    """In one order, whoever asks; and no laptop or gateway can be called so."""
    assert name_of(ONE) == "tunnel.eu-north-1.us-west-2"
    for user, device in (("tunnel", "eu-north-1.us-west-2"), ("tunnel.eu-north-1", "us-west-2")):
        with pytest.raises(InputError):
            laptop(user, device)


PEERS = peer_subjects(direct_plan(TEXT + "vpn: {tunnels: {auth: certificates}}\n"))
NAME = PEERS[ATTIC].name
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return an authority that has issued to both gateways."""
    made = begun_in(tmp_path)
    issue_anew(pki_in(made), tuple(PEERS.values()), NOW, unasked)
    return made


def _papers(folder: PkiFolder, passphrase: Passphrase = unasked) -> Mapping[str, Papers]:
    found = papers_of(pki_in(folder), PEERS, passphrase, NOW)
    return {place: each for place, each in found.items() if isinstance(each, Papers)}


def test_each_joined_gateway_is_named_once() -> None:
    """By its place in the fleet's domain, for IKE alone; where gateways have keys, nobody is."""
    assert dict(PEERS) == {
        ATTIC: Subject("tunnels.attic.rooms.internal", Use.PEER),
        CELLAR: Subject("tunnels.cellar.rooms.internal", Use.PEER),
    }
    assert peer_subjects(direct_plan()) == {}


def test_a_gateway_has_its_own_papers_and_the_authoritys(folder: PkiFolder) -> None:
    """No two share a key; the list is the authority's own."""
    papers = _papers(folder)

    assert papers[ATTIC].key != papers[CELLAR].key
    assert papers[ATTIC].authorities == (folder.authority.read_text(),)
    assert papers[ATTIC].revoked == (folder.lists.read_text(),)
    assert "PRIVATE" not in repr(papers)


def test_under_a_root_both_lists_and_both_authorities_are_handed_out(tmp_path: Path) -> None:
    """Each certificate of the chain is looked up, and swanctl reads one of a file."""
    folder = begun_in(tmp_path, root=new_root("lab", NOW))
    issue_anew(pki_in(folder), tuple(PEERS.values()), NOW, unasked)

    papers = _papers(folder)[ATTIC]

    assert [len(each) for each in (papers.authorities, papers.revoked)] == [2, 2]
    assert [text.count("BEGIN") for text in (*papers.authorities, *papers.revoked)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("days", "lacking"), [(44, []), (46, [ATTIC, CELLAR]), (91, [ATTIC, CELLAR])])
def test_past_the_half_of_a_life_another_is_due(days: int, lacking: list[str], folder: PkiFolder) -> None:
    """And of laptops and their servers nothing, whoever has left."""
    added(folder, "ada")
    issue_anew(pki_in(folder), (gateway("us-west-2", "rooms.internal"),), NOW, unasked)

    found = due_peers(pki_in(folder).roll, PEERS.values(), (), NOW + days * DAY)

    assert (found.left, found.gone) == ((), ())
    assert found.lacking == tuple(PEERS[place] for place in lacking)


def test_a_gateway_that_is_joined_no_more_is_gone(folder: PkiFolder) -> None:
    """It alone."""
    assert due_peers(pki_in(folder).roll, [PEERS[CELLAR]], (), NOW).gone == (PEERS[ATTIC].name,)


@pytest.fixture
def strangers(tmp_path: Path) -> Pki:
    """Return another authority that has issued to both gateways."""
    (tmp_path / "other").mkdir()
    made = begun_in(tmp_path / "other")
    issue_anew(pki_in(made), tuple(PEERS.values()), NOW, unasked)
    return pki_in(made)


def _laptops(pki: Pki, _: Pki) -> str:
    added(pki.folder, "ada")
    return pki.store.read("ada.laptop") or ""


def _strangers(_: Pki, other: Pki) -> str:
    return other.store.read(NAME) or ""


def _anothers(pki: Pki, _: Pki) -> str:
    return pki.store.read(PEERS[CELLAR].name) or ""


def _revoked(pki: Pki, _: Pki) -> str:
    text = pki.store.read(NAME) or ""
    revoke(pki, [NAME], Reason.REPLACED, NOW, unasked)
    issue_anew(pki, (PEERS[ATTIC],), NOW, unasked)
    return text


def _mixed(pki: Pki, _: Pki) -> str:
    own, other = (parse_bundle(pki.store.read(PEERS[place].name) or "") for place in (ATTIC, CELLAR))
    return own.certificate + other.key


def _damaged(pki: Pki, _: Pki) -> str:
    head, *lines = (pki.store.read(NAME) or "").splitlines(keepends=True)
    return "".join((head, lines[0].swapcase(), *lines[1:]))


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (_laptops, "may not be used as a peer"),
        (_strangers, "issued by"),
        (_anothers, r"names CN=tunnels\.cellar\.rooms\.internal"),
        (_revoked, "was revoked"),
        (_mixed, "is not of the key beside it"),
        (_damaged, "cannot be read"),
        (lambda *_: "half of a\n", "no certificate with its key"),
    ],
    ids=["laptop", "stranger", "another", "revoked", "mixed", "damaged", "cut"],
)
def test_what_peers_would_refuse_is_handed_to_nobody(
    put: Callable[[Pki, Pki], str], why: str, folder: PkiFolder, strangers: Pki
) -> None:
    """Whatever somebody put into a gateway's place is told, without a word of what it holds; the other has its own."""
    pki = pki_in(folder)
    pki.store.write({NAME: put(pki, strangers)})

    found = papers_of(pki_in(folder), PEERS, unasked, NOW)

    assert isinstance(found[CELLAR], Papers)
    with pytest.raises(InputError, match=why) as refused:
        given(found[ATTIC])
    assert "BEGIN" not in str(vars(refused.value))


def test_a_list_that_has_ended_is_carried_to_nobody(folder: PkiFolder) -> None:
    """Whoever reads it would let nobody in."""
    with pytest.raises(InputError, match=r"crl\.pem ended"):
        papers_of(pki_in(folder), PEERS, unasked, NOW + 91 * DAY)


def test_locked_keys_are_locked_here_and_open_on_the_gateway(tmp_path: Path) -> None:
    """By the authority's passphrase; a gateway starts with nobody there to be asked."""
    folder = begun_in(tmp_path, lock=LOCK)
    issue_anew(pki_in(folder), tuple(PEERS.values()), NOW, lambda: LOCK)

    kept = pki_in(folder).store.read(PEERS[ATTIC].name) or ""
    papers = _papers(folder, lambda: LOCK)

    assert is_locked(parse_bundle(kept).key)
    assert not is_locked(papers[ATTIC].key)
