"""A book that a gateway takes: judged before anything is changed, and what daemons are owed is kept until done."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from getpass import getuser
from pathlib import Path

import pytest

from tests.support.laptop_keys import LabKeys, moment
from tests.support.laptop_plans import lab_gateways
from tests.support.management_ear import daemon
from tests.support.needs import need_program
from vpn.keeper.book import parse_book, take
from vpn.keeper.owed import Owed, read_owed
from vpn.keeper.place import TRANSPORTS, Place
from vpn.keeper.trouble import Refusal, Unfinished
from vpn.laptops.carry import Book, GatewayKeys, book_text
from vpn.laptops.server import Laptop
from vpn.subject import Use

ADA, BOB = Laptop("ada.laptop", 0), Laptop("bob.laptop", 1)
GATEWAY = lab_gateways()[0]


@dataclass(frozen=True)
class Taking:
    """A gateway, the authority that it trusts, and the books that it takes."""

    place: Place
    keys: LabKeys

    def take(self, *laptops: Laptop, keys: GatewayKeys | None = None, revoked: Mapping[int, str] | None = None) -> None:
        """Take a book with the next list."""
        self.send(Book(self.keys.revocations(), laptops, {GATEWAY.place: keys} if keys else {}, revoked or {}))

    def send(self, book: Book) -> None:
        """Take a book."""
        take(self.place, parse_book(book_text(GATEWAY, book)))

    def identity(self, keys: LabKeys | None = None, use: Use = Use.SERVER) -> GatewayKeys:
        """Make a new certificate for the gateway."""
        signer = keys or self.keys
        return GatewayKeys(signer.trusted, *signer.pair(GATEWAY.name, use), signer.hidden)

    @contextmanager
    def daemons(self, *served: str, mute: tuple[str, ...] = ()) -> Iterator[dict[str, list[str]]]:
        """Run both daemons, and give what each is told to do."""
        with ExitStack() as running:
            yield {
                each: running.enter_context(daemon(self.place.socket(each), *served, mute=each in mute))
                for each in TRANSPORTS
            }

    @property
    def lying(self) -> dict[str, bytes]:
        """Every file of the gateway's settings."""
        return {str(each): each.read_bytes() for each in self.place.settings.rglob("*") if each.is_file()}


@pytest.fixture
def gate(tmp_path: Path) -> Taking:
    """Give a gateway that took a book, with a certificate, while no daemon ran."""
    need_program("openssl")
    made = Taking(Place(tmp_path / "e", tmp_path / "s", getuser(), tmp_path / "m", tmp_path), LabKeys())
    for folder in (made.place.settings, *(made.place.socket(each).parent for each in TRANSPORTS)):
        folder.mkdir(parents=True)
    made.take(ADA, BOB, keys=made.identity())
    return made


@pytest.mark.parametrize("mask", ["027", "077"])
def test_what_a_gateway_takes_is_read_by_its_daemons(gate: Taking, mask: str) -> None:
    """They are not root: whatever the mask that sudo hands on, all but keys is open to them."""
    book = Book(gate.keys.revocations(), (ADA,), {GATEWAY.place: gate.identity()}, {})
    place = gate.place
    places = {"settings": place.settings, "sockets": place.sockets, "owner": place.owner, "memory": place.memory}
    words = [f"--{key}={value}" for key, value in places.items()]
    keeper = shlex.join([sys.executable, "-m", "vpn.keeper", *words, f"--root={place.root}", "take"])

    subprocess.run(["sh", "-c", f"umask {mask}; {keeper}"], input=book_text(GATEWAY, book), text=True, check=True)

    modes = {each.name: each.stat().st_mode & 0o777 for each in place.settings.rglob("*")}
    assert modes["ca.crt"] == modes["server.crt"] == 0o444
    assert modes["server.key"] == modes["tls-crypt-v2.key"] == 0o400
    assert modes["crl.pem"] & modes["ada.laptop"] & 0o444 == 0o444
    assert modes["udp.laptops"] & modes["tcp.laptops"] & 0o555 == 0o555


def test_a_certificate_is_taken_up_though_another_daemon_was_mute(gate: Taking) -> None:
    """The one that answers starts anew at once, the mute one by the next book, and nobody a second time."""
    fresh = gate.identity()
    with gate.daemons(mute=("tcp",)) as first, pytest.raises(Unfinished, match="tcp"):
        gate.take(ADA, BOB, keys=fresh)

    with gate.daemons() as second:
        gate.take(ADA, BOB, keys=fresh)
    with gate.daemons() as third:
        gate.take(ADA, BOB, keys=fresh)

    assert first["udp"] == ["signal SIGHUP"]
    assert second == {"udp": [], "tcp": ["signal SIGHUP"]}
    assert third == {"udp": [], "tcp": []}


def test_a_list_that_is_refused_changes_no_certificate(gate: Taking) -> None:
    """Both are judged first: else a daemon would go by the old one while its file tells of the new."""
    ended = Book(gate.keys.revocations(timedelta(0)), (ADA, BOB), {GATEWAY.place: gate.identity()})
    before = gate.lying

    with pytest.raises(Refusal, match="ended on"):
        gate.send(ended)

    assert gate.lying == before
    assert not gate.place.owed.exists()


def test_a_list_that_has_not_begun_is_refused(gate: Taking) -> None:
    """OpenVPN would let in nobody: a clock was wrong, and the gateway goes on as it was."""
    before = gate.lying

    with pytest.raises(Refusal, match=r"begins on .* and here it is"):
        gate.send(Book(gate.keys.revocations(at=moment() + timedelta(days=365)), (ADA, BOB)))

    assert gate.lying == before
    gate.send(Book(gate.keys.revocations(at=moment() + timedelta(minutes=4)), (ADA, BOB)))


def test_a_certificate_that_is_refused_changes_no_list(gate: Taking) -> None:
    """Nor whom the gateway lets in."""
    before = gate.lying

    with pytest.raises(Refusal, match="not one to trust"):
        gate.take(ADA, keys=gate.identity(use=Use.CLIENT))

    assert gate.lying == before


def test_every_certificate_of_ca_crt_is_the_authoritys(gate: Taking) -> None:
    """Daemons would trust a second one as well, and it needs no list of revoked certificates."""
    before, fresh = gate.lying, gate.identity()

    with pytest.raises(Refusal, match=r"ca\.crt must hold one certificate"):
        gate.take(ADA, keys=replace(fresh, trusted=fresh.trusted + LabKeys().trusted))

    assert gate.lying == before


def test_a_revoked_certificate_is_not_taken_up(gate: Taking) -> None:
    """The list that comes with it is asked."""
    before, fresh = gate.lying, gate.identity()
    gate.keys.revoke(GATEWAY.name)

    with pytest.raises(Refusal, match="certificate revoked"):
        gate.take(ADA, keys=fresh)

    assert gate.lying == before


def test_a_list_is_judged_by_the_authority_that_comes_with_it(gate: Taking) -> None:
    """A new authority counts its lists from one again, and the old one's list is none of its own."""
    for _ in range(3):
        gate.take(ADA, BOB)
    after = LabKeys()

    gate.send(Book(after.revocations(), (ADA, BOB), {GATEWAY.place: gate.identity(after)}))

    assert gate.place.trusted.read_text() == after.trusted
    with pytest.raises(Refusal, match="signed by somebody else"):
        gate.take(ADA, BOB)


def test_a_session_ends_with_its_certificate_though_the_name_has_another(gate: Taking) -> None:
    """A gateway that was away while ada's was taken back and another issued: same name, same address, another key."""
    gate.keys.laptop(ADA.name)
    serial = gate.keys.revoke(ADA.name)
    gate.keys.laptop(ADA.name)

    with gate.daemons(ADA.name, BOB.name) as orders:
        gate.take(ADA, BOB, revoked={serial: ADA.name})
        gate.take(ADA, BOB, revoked={serial: ADA.name})

    assert orders == {each: [f"kill {ADA.name}"] for each in TRANSPORTS}


def test_a_cut_that_failed_is_made_up_though_the_name_is_let_in(gate: Taking) -> None:
    """What a mute daemon was not told, the next book tells it."""
    gate.keys.laptop(ADA.name)
    serial = gate.keys.revoke(ADA.name)
    with gate.daemons(ADA.name, mute=("udp",)), pytest.raises(Unfinished, match="udp"):
        gate.take(ADA, BOB, revoked={serial: ADA.name})
    assert read_owed(gate.place.owed) == Owed(cut=frozenset({ADA.name}))

    with gate.daemons(ADA.name) as orders:
        gate.take(ADA, BOB, revoked={serial: ADA.name})

    assert orders["udp"] == [f"kill {ADA.name}"]
    assert not gate.place.owed.exists()


def test_what_was_noted_and_not_done_is_done_by_the_next(gate: Taking) -> None:
    """An end of the power between the two; a note that is spoilt keeps no book from being taken."""
    gate.place.owed.write_text(json.dumps({"cut": [BOB.name], "anew": ["tcp"]}))
    with gate.daemons(BOB.name) as orders:
        gate.take(ADA, BOB)
    gate.place.owed.write_text("{")
    gate.take(ADA, BOB)

    assert orders == {"udp": [f"kill {BOB.name}"], "tcp": [f"kill {BOB.name}", "signal SIGHUP"]}


@pytest.mark.parametrize("revoked", [{"2B": "ada.laptop"}, {"": "ada.laptop"}, {"2b": "../ada"}, ["2b"], {"2b": 1}])
def test_a_book_that_bedplate_never_writes_is_refused(revoked: object, gate: Taking) -> None:
    """Serials are written one way; a name is a laptop's."""
    told = json.loads(book_text(GATEWAY, Book(gate.keys.revocations(), (ADA,))))

    with pytest.raises(Refusal, match="no book of laptops"):
        parse_book(json.dumps(told | {"revoked": revoked}))
