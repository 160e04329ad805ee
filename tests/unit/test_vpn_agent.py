"""The keeper of a gateway takes no book that is older than the one in force."""

import json
import os
import pwd
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from getpass import getuser
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.testlab.fakes.daemons import daemon
from tests.testlab.fleets.variants import cellar, lab_gateways
from tests.testlab.keys.authority import LabKeys, moment
from tests.testlab.network.netlab import until
from tests.testlab.run import need_program
from vpn.certificates import Use
from vpn.keeper import status
from vpn.keeper.book import Book, Owed, parse_book, read_owed, take
from vpn.keeper.place import TRANSPORTS, Place, Refusal, Unfinished
from vpn.keeper.sessions import Session, end_sessions, remember, seen
from vpn.keeper.status import Answers, Neighbour, Tunnel, answers, neighbours, spoken
from vpn.laptops.push import Book as PushBook
from vpn.laptops.push import GatewayKeys, book_text
from vpn.laptops.server import Laptop
from vpn.sites.files import bgp_of

FILE = "ifconfig-push 10.121.0.2 255.255.254.0\n"


@pytest.fixture
def keys() -> LabKeys:
    """Return an authority."""
    return LabKeys()


@pytest.fixture
def place(tmp_path: Path, keys: LabKeys) -> Place:
    """Return a gateway that trusts the authority, and whose daemons do not run."""
    need_program("openssl")
    (tmp_path / "ca.crt").write_text(keys.trusted)
    return Place(tmp_path, tmp_path / "nowhere", pwd.getpwuid(os.getuid()).pw_name, tmp_path / "memory")


def _book(crl: str, version: int = 1, names: tuple[str, ...] = ("ada.laptop",)) -> Book:
    return Book(crl, {each: dict.fromkeys(names, FILE) for each in TRANSPORTS}, (), version=version)


def _state(place: Place) -> dict[str, str]:
    return {str(each): each.read_text() for each in sorted(place.settings.rglob("*")) if each.is_file()}


def test_a_book_of_the_same_or_a_higher_version_is_taken(place: Place, keys: LabKeys) -> None:
    """The gateway remembers the version."""
    crl = keys.revocations()

    for version in (1, 1, 4):
        take(place, _book(crl, version))

    assert place.version.read_text() == "4\n"


def test_a_book_of_a_lower_version_changes_nothing(place: Place, keys: LabKeys) -> None:
    """A laptop that the newer book lets in stays in, also where the older book brings a newer list."""
    take(place, _book(keys.revocations(), 2))
    before = _state(place)

    with pytest.raises(Refusal, match=r"version 1\) is older than the one in force \(version 2\)"):
        take(place, _book(keys.revocations(), 1, names=()))

    assert _state(place) == before


def test_two_different_lists_of_one_number_are_refused(place: Place, keys: LabKeys) -> None:
    """The second might let in a laptop that the first revoked. The same list again is taken."""
    other = LabKeys(keys.issuer)
    first, second = keys.revocations(), other.revocations()
    take(place, _book(first))

    with pytest.raises(Refusal, match="have the number 1"):
        take(place, _book(second))

    take(place, _book(first))
    assert place.crl.read_text() == first


def test_an_older_list_is_refused_whatever_the_version(place: Place, keys: LabKeys) -> None:
    """It would let in a laptop that was revoked."""
    older = keys.revocations()
    take(place, _book(keys.revocations(), 1))

    with pytest.raises(Refusal, match="list 1 of revoked certificates is older than the one in force, 2"):
        take(place, _book(older, 2))


def test_the_versions_of_a_new_authority_start_again(place: Place, keys: LabKeys) -> None:
    """It comes with its own keys for the gateway; its lists are numbered from 1, too."""
    for _ in range(3):
        last = keys.revocations()
    take(place, _book(last, 2))
    fresh = LabKeys()
    certificate, key = fresh.pair("gateway.cellar.lab.internal", Use.SERVER)
    names = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
    identity = dict(zip(names, (fresh.trusted, certificate, key, fresh.hidden), strict=True))

    take(place, replace(_book(fresh.revocations(), 1), identity=identity))

    assert place.version.read_text() == "1\n"


ADA, BOB = Laptop("ada.laptop", 0), Laptop("bob.laptop", 1)
GATEWAY = lab_gateways()[0]


@dataclass(frozen=True)
class Taking:
    """A gateway, the authority that it trusts, and the books that it takes."""

    place: Place
    keys: LabKeys

    def take(self, *laptops: Laptop, keys: GatewayKeys | None = None, revoked: Mapping[int, str] | None = None) -> None:
        """Take a book with the next list."""
        self.send(PushBook(self.keys.revocations(), laptops, {GATEWAY.place: keys} if keys else {}, revoked or {}))

    def send(self, book: PushBook) -> None:
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
    book = PushBook(gate.keys.revocations(), (ADA,), {GATEWAY.place: gate.identity()}, {})
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
    ended = PushBook(gate.keys.revocations(timedelta(0)), (ADA, BOB), {GATEWAY.place: gate.identity()})
    before = gate.lying

    with pytest.raises(Refusal, match="ended on"):
        gate.send(ended)

    assert gate.lying == before
    assert not gate.place.owed.exists()


def test_a_list_that_has_not_begun_is_refused(gate: Taking) -> None:
    """OpenVPN would let in nobody: a clock was wrong, and the gateway goes on as it was."""
    before = gate.lying

    with pytest.raises(Refusal, match=r"begins on .* and here it is"):
        gate.send(PushBook(gate.keys.revocations(at=moment() + timedelta(days=365)), (ADA, BOB)))

    assert gate.lying == before
    gate.send(PushBook(gate.keys.revocations(at=moment() + timedelta(minutes=4)), (ADA, BOB)))


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

    gate.send(PushBook(after.revocations(), (ADA, BOB), {GATEWAY.place: gate.identity(after)}))

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
    told = json.loads(book_text(GATEWAY, PushBook(gate.keys.revocations(), (ADA,))))

    with pytest.raises(Refusal, match="no book of laptops"):
        parse_book(json.dumps(told | {"revoked": revoked}))


VPN_SEEN_ADA = Session("ada.laptop", "10.121.4.2", 1, 1, 90, None)


def test_who_was_there_is_remembered(tmp_path: Path) -> None:
    """The moment of the last look at which the laptop was connected; others' moments stay."""
    file = tmp_path / "memory" / "seen.json"
    remember(file, seen(file, [VPN_SEEN_ADA], 100))
    remember(file, seen(file, [], 160))
    remember(file, seen(file, [Session("grace.laptop", "10.121.4.3", 1, 1, 150, None)], 220))

    assert seen(file, [], 300) == {"ada.laptop": 100, "grace.laptop": 220}
    assert [left.name for left in file.parent.iterdir()] == ["seen.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ada.laptop": "yesterday"}', "\xff"])
def test_a_spoilt_memory_tells_nothing(text: str, tmp_path: Path) -> None:
    """And keeps nobody from being seen."""
    file = tmp_path / "seen.json"
    file.write_bytes(text.encode("latin-1"))

    assert seen(file, [VPN_SEEN_ADA], 100) == {"ada.laptop": 100}


def test_who_is_let_in_no_more_is_cut_off_though_nobody_names_them(tmp_path: Path) -> None:
    """A cut that failed once is made up by the next book; who is let in, and who is shaking hands, stays."""
    udp = tmp_path / "udp"

    with daemon(udp, "ada.laptop", "bob.laptop", "UNDEF") as orders:
        ended = end_sessions({udp: {"bob.laptop"}}, ())

    assert (orders, ended) == (["kill ada.laptop"], {"ada.laptop": 1})


def test_a_daemon_that_is_mute_keeps_nobody_in_at_the_other(tmp_path: Path) -> None:
    """All daemons are asked before it is told that one did not answer; one that does not run serves nobody."""
    mute, tcp, gone = tmp_path / "udp", tmp_path / "tcp", tmp_path / "gone"

    with daemon(mute, mute=True), daemon(tcp, "ada.laptop") as orders, pytest.raises(Unfinished, match="udp"):
        end_sessions({mute: (), gone: (), tcp: ()}, ("ada.laptop",))

    assert orders == ["kill ada.laptop"]


# A charon is mute where its socket's name says so, and answers where a folder of that name holds what it says.
_SWANCTL = """#!/bin/sh
for uri; do :; done
charon=$(basename "$uri" .vici)
[ "$charon" != hung ] || exec sleep 30
cat "{told}/$charon$1" 2>/dev/null
"""
_CONN = "list-conn event {%s {version=IKEv2 children {net {mode=TUNNEL}}}}\n"
_SA = "list-sa event {%s {state=ESTABLISHED established=30 child-sas {net-1 {bytes-in=9 use-in=4 bytes-out=8}}}}\n"


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a gateway with a stand-in for swanctl, and no charon yet."""
    for folder in ("files", "sockets", "told"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "swanctl"
    program.write_text(_SWANCTL.format(told=tmp_path / "told"))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(status, "SWANCTL", program)
    monkeypatch.setattr(status, "_SECONDS", 1)
    return tmp_path


def _files(gateway: Path, charon: str, *tunnels: str) -> None:
    (gateway / "files" / charon).mkdir()
    table = "".join(f"{each} 7 169.254.64.2/30 1400 -\n" for each in tunnels)
    (gateway / "files" / charon / "table").write_text(table)


def _says(gateway: Path, charon: str, conns: str, sas: str) -> None:
    (gateway / "sockets" / f"{charon}.vici").touch()
    (gateway / "told" / f"{charon}--list-conns").write_text(conns)
    (gateway / "told" / f"{charon}--list-sas").write_text(sas)


def _asked(gateway: Path) -> Answers:
    return answers(gateway / "files", gateway / "sockets")


def test_a_gateway_without_tunnels_says_so() -> None:
    """It has no files of any, and no daemon; that is no fault of its own."""
    assert answers(Path("/nowhere"), Path("/nowhere")) == Answers({}, None)


def test_tunnels_of_a_daemon_that_is_dead_are_told_as_down(gateway: Path) -> None:
    """By the gateway's own files; the others are told as they are."""
    _files(gateway, "one", "one")
    _files(gateway, "two", "two")
    _says(gateway, "one", _CONN % "one", _SA % "one")

    found = _asked(gateway)

    assert found.charons == {"one": True, "two": False}
    assert found.tunnels == (Tunnel("one", 30, 9, 8, 4, "one"), Tunnel("two", None, 0, 0, None, "two"))


def test_a_daemon_that_hangs_holds_nobody_up(gateway: Path) -> None:
    """It is told as one that does not answer, and what was to be told besides is told."""
    _files(gateway, "hung", "one", "two")
    (gateway / "sockets" / "hung.vici").touch()

    found = _asked(gateway)

    assert found.charons == {"hung": False}
    assert [(each.name, each.age) for each in found.tunnels or ()] == [("one", None), ("two", None)]


def test_a_tunnel_that_its_daemon_was_not_told_of_is_down(gateway: Path) -> None:
    """A file that was laid and never read is a tunnel that carries nothing."""
    _files(gateway, "tunnels", "one", "two")
    _says(gateway, "tunnels", _CONN % "one", _SA % "one")

    assert [(each.name, each.age) for each in _asked(gateway).tunnels or ()] == [("one", 30), ("two", None)]


def test_a_socket_that_nobody_listens_at_is_no_daemon(gateway: Path) -> None:
    """One that went left it behind: an alarm that it does not answer would never end; of the others all is told."""
    (gateway / "sockets" / "gone.vici").touch()
    _says(gateway, "unknown", _CONN % "one", "")

    found = _asked(gateway)

    assert found.charons == {"unknown": True}
    assert [each.name for each in found.tunnels or ()] == ["one"]


NAMED = [("169.254.64.1", "us-west-2-1"), ("169.254.64.5", "us-west-2-2")]
# As FRR 8.4.4 prints both, with the word that it leaves at the end of the second.
TOLD = """{
  "routerId":"192.168.40.1",
  "peers":{
    "169.254.64.1":{"remoteAs":64600, "peerUptimeMsec":5900, "pfxRcd":1, "state":"Established"},
    "169.254.64.5":{"remoteAs":64600, "peerUptimeMsec":0, "pfxRcd":0, "state":"Active"}
  },
  "totalPeers":2
}
{
 "vrfName": "default",
 "routes": { "10.64.0.0/16": [{"valid":true,"peerId":"169.254.64.1"},{"valid":true,"peerId":"169.254.64.9"}]
,"192.168.40.0/22": [{"valid":true,"peerId":"(unspec)"}]}
 }  }
"""
DOWN = tuple(Neighbour(tunnel, None, ()) for _, tunnel in NAMED)


def test_a_neighbour_is_told_by_its_tunnel_with_what_it_tells() -> None:
    """One that is dialled and does not answer is down; the gateway's own blocks are nobody's."""
    assert spoken(NAMED, TOLD) == (Neighbour("us-west-2-1", 5, ("10.64.0.0/16",)), DOWN[1])


@pytest.mark.parametrize(
    "told", ["", "Exiting: failed to connect to any daemons.\n", "{}\n{}\n", TOLD[:200], '{"peers": []}', "{"]
)
def test_neighbours_of_daemons_that_say_nothing_are_down(told: str) -> None:
    """Silence is no health."""
    assert spoken(NAMED, told) == DOWN


def test_neighbours_are_those_of_the_gateways_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the product writes it, each by its tunnel; a gateway without such a file has none."""
    site = cellar()
    file, written = tmp_path / "frr.conf", bgp_of(site)
    assert written
    file.write_text(written.text)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert neighbours(file) == tuple(Neighbour(each.name, None, ()) for each in site.tunnels)
    assert neighbours(tmp_path / "nothing") == ()


SCRIPTS = Path(__file__).parents[2] / "vpn/sites"
# Every order is written down; `stands.NAME` is what a tunnel of that name has, `slow.NAME` has its dialling take long.
_VPN_WATCH_SWANCTL = r"""#!/bin/bash
echo "$*" >>"$TOLD/orders"
case $1 in
--list-sas) cat "$TOLD/stands.$3" 2>/dev/null; exit 0 ;;
--initiate) [[ ! -e $TOLD/slow.$3 ]] || sleep 30; echo "[IKE] many"; echo "initiate failed: nobody there"; exit 1 ;;
esac
"""
STANDS = "{0}: #{1}, ESTABLISHED, IKEv2, 1_i* 2_r\n  local  'a' @ 192.0.2.1[500]\n"
CARRIES = "  {0}: #{1}, reqid 1, INSTALLED, TUNNEL, ESP:AES_GCM_16-256\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which a test says what stands, and reads what was ordered."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("swanctl", _VPN_WATCH_SWANCTL), ("ping", '#!/bin/sh\necho "ping $*" >>"$TOLD/orders"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for script in ("ipsec-look", "ipsec-watch"):
        (tools / script).write_text((SCRIPTS / f"{script}.sh").read_text())
        (tools / script).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("TOLD", str(tmp_path))
    return tmp_path


def _orders(told: Path, word: str) -> list[str]:
    file = told / "orders"
    return [line for line in file.read_text().splitlines() if line.startswith(word)] if file.exists() else []


def _look(told: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([told / "tools/ipsec-look", "unix:///s", *words], text=True, capture_output=True, check=False)


@contextmanager
def _watching(told: Path, *rows: str) -> Iterator[Path]:
    """Have a table watched at a pace of tenths of a second; give the file of what is said."""
    (told / "table").write_text("".join(f"{row}\n" for row in rows))
    said = told / "said"
    paces = ("0", "0.1", "0", "1.5")
    with said.open("wb") as sink:
        command = [str(told / "tools/ipsec-watch"), str(told / "table"), "unix:///s", *paces]
        with subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as program:
            yield said
            os.killpg(program.pid, SIGTERM)


@pytest.mark.parametrize(
    ("told_of", "ended"),
    [
        (STANDS.format("attic", 7) + CARRIES.format("attic", 1), []),
        (
            STANDS.format("attic", 7)
            + CARRIES.format("attic", 1)
            + STANDS.format("attic", 9)
            + CARRIES.format("attic", 2),
            ["7"],
        ),
        (STANDS.format("attic", 7) + CARRIES.format("attic", 1) + STANDS.format("attic", 9), ["9"]),
        (STANDS.format("attic", 9) + STANDS.format("attic", 10), ["9"]),
        (
            STANDS.format("attic", 7).replace("ESTABLISHED", "REKEYED")
            + STANDS.format("attic", 9)
            + CARRIES.format("attic", 2),
            [],
        ),
    ],
    ids=["once", "newest-carries", "older-carries", "none-carries", "renewed"],
)
def test_of_a_tunnel_that_stands_twice_the_newest_that_carries_is_left(
    told_of: str, ended: list[str], told: Path
) -> None:
    """Who dials ends the others; who waits ends none."""
    (told / "stands.attic").write_text(told_of)

    _look(told, "attic", "waits")
    untouched = _orders(told, "--terminate")
    _look(told, "attic", "dials")

    assert untouched == []
    assert [line.split()[2] for line in _orders(told, "--terminate")] == ended


def test_what_does_not_stand_is_dialled_once_and_it_is_said_why_not(told: Path) -> None:
    """In two lines: what the daemon says besides is in its own journal."""
    done = _look(told, "attic", "waits")

    assert done.returncode == 1
    assert done.stdout == "attic does not stand: dialling\nattic: initiate failed: nobody there\n"
    assert len(_orders(told, "--initiate")) == 1


def test_a_word_is_said_through_what_stands_alone(told: Path) -> None:
    """To the address at its far end; one that is being built is left alone."""
    (told / "stands.attic").write_text(STANDS.format("attic", 7) + CARRIES.format("attic", 1))
    (told / "stands.cellar").write_text("cellar: #1, CONNECTING, IKEv2\n")

    assert [_look(told, name, "dials", "10.0.0.1").returncode for name in ("attic", "cellar", "barn")] == [0, 2, 1]

    assert len(_orders(told, "ping")) == 1
    assert [line.split()[2] for line in _orders(told, "--initiate")] == ["barn"]


def test_each_tunnel_is_looked_after_at_its_own_pace(told: Path) -> None:
    """One that nobody answers keeps no other waiting, and who waits for a caller looks less often than who dials."""
    for name in ("attic", "barn"):
        (told / f"stands.{name}").write_text(STANDS.format(name, 7) + CARRIES.format(name, 1))
    (told / "slow.silent").touch()

    def looks(name: str) -> int:
        return len(_orders(told, f"--list-sas --ike {name} "))

    with _watching(told, "silent 1 - 1400 - dials", "attic 2 - 1400 - dials", "barn 3 - 1400 - waits"):
        until(lambda: looks("attic") >= 12, 30, "it is not looked at again and again")
        seen = {name: looks(name) for name in ("silent", "attic", "barn")}

    assert seen["silent"] <= 2
    assert seen["barn"] < seen["attic"] / 2


def test_what_stays_as_it_is_is_said_once(told: Path) -> None:
    """A tunnel that is away for hours is two lines of the journal, and one when it is back, not while it is built."""
    with _watching(told, "attic 2 - 1400 - dials") as said:
        until(lambda: len(_orders(told, "--initiate")) >= 5, 30, "it is not dialled again and again")
        (told / "stands.attic").write_text("attic: #6, CONNECTING, IKEv2\n")
        looked = len(_orders(told, "--list-sas"))
        until(lambda: len(_orders(told, "--list-sas")) > looked + 3, 30, "it is not looked at again and again")
        away = said.read_text()
        (told / "stands.attic").write_text(STANDS.format("attic", 7) + CARRIES.format("attic", 1))
        until(lambda: "attic stands\n" in said.read_text(), 30, "it is not said that it stands")
        back = said.read_text()

    assert away == "attic does not stand: dialling\nattic: initiate failed: nobody there\n"
    assert back == f"{away}attic stands\n"
