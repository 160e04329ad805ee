"""Certificates of tunnels: whose they are, what is due, and that nothing else is handed out in their place."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.errors import InputError
from tests.support.authority import NOW, added, begun_in, pki_in, unasked
from tests.support.direct_fleet import ATTIC, CELLAR, TEXT, direct_plan
from vpn.authority import new_root
from vpn.bundle import parse_bundle
from vpn.passphrase import Passphrase, is_locked
from vpn.peers import due_peers, papers_of, peer_subjects
from vpn.pki import Pki
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason
from vpn.signing import issue_anew, revoke
from vpn.sites.proof import Papers, given
from vpn.subject import Subject, Use, gateway

PEERS = peer_subjects(direct_plan(TEXT + "vpn: {tunnels: {auth: certificates}}\n"))
NAME = PEERS[ATTIC].name
DAY = timedelta(days=1)
LOCK = b"a passphrase of some length"


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
