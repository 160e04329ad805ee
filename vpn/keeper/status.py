"""How a gateway is: its daemons, who is connected, when its certificates end, and what its tunnels carry."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from .book import NOTHING, Owed, read_owed
from .certificate import certificate_end, crl_end, crl_number
from .place import TRANSPORTS, Place, Refusal, Trouble, put
from .sessions import Seen, Session, seen, sessions

_WORD = re.compile(r"[{}\[\]]|[^\s{}\[\]=]+=?|=")
Told = dict[str, "str | Told"]


@dataclass(frozen=True)
class Tunnel:
    """A connection: seconds since its association was made, bytes both ways, and seconds since a packet came in.

    All are None or 0 where it has no association. `charon` names the daemon that has it.
    """

    name: str
    age: int | None
    received: int
    sent: int
    idle: int | None
    charon: str = ""


def carried(known: str, standing: str) -> tuple[Tunnel, ...]:
    """Return the connections of what `--list-conns --raw` and `--list-sas --raw` print."""
    alive = list(_events(standing))
    return tuple(_tunnel(name, [sa for event in alive for each, sa in event if each == name]) for name in _names(known))


def _names(known: str) -> list[str]:
    return [name for event in _events(known) for name, _ in event]


def _tunnel(name: str, associations: list[Told]) -> Tunnel:
    children = [child for sa in associations for child in _tables(sa.get("child-sas"))]
    ages = [int(_text(sa, "established")) for sa in associations if sa.get("state") == "ESTABLISHED"]
    idle = [int(_text(child, "use-in")) for child in children if "use-in" in child]
    return Tunnel(
        name=name,
        age=max(ages, default=None),
        received=sum(int(_text(child, "bytes-in")) for child in children),
        sent=sum(int(_text(child, "bytes-out")) for child in children),
        idle=min(idle, default=None),
    )


def _text(told: Told, key: str) -> str:
    value = told.get(key, "0")
    return value if isinstance(value, str) else "0"


def _tables(told: str | Told | None) -> list[Told]:
    return [each for each in told.values() if isinstance(each, dict)] if isinstance(told, dict) else []


def _events(raw: str) -> Iterator[list[tuple[str, Told]]]:
    for line in raw.splitlines():
        _, event, rest = line.partition(" event ")
        if event:
            told = _parsed(iter(_WORD.findall(rest)[1:]))
            yield [(name, each) for name, each in told.items() if isinstance(each, dict)]


def _parsed(words: Iterator[str]) -> Told:
    """Return a section: `key=value`, `key=[list]` and `key {section}`, up to its closing brace."""
    told: Told = {}
    key = ""
    for word in words:
        if word == "}":
            return told
        if word == "{":
            told[key] = _parsed(words)
        elif word == "[":
            told[key] = " ".join(iter(lambda: next(words), "]"))
        elif word.endswith("="):
            key = word[:-1]
            told[key] = ""
        elif told.get(key) == "":
            told[key] = word
        else:
            key = word
    return told


_PEERS, _ROUTES = "show bgp ipv4 unicast summary json", "show bgp ipv4 unicast json"
_SECONDS = 5
_NEIGHBOUR = re.compile(r"^ *neighbor (\S+) description (\S+)$", re.MULTILINE)
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class Neighbour:
    """The far end of a tunnel: seconds since BGP stands with it, None where it does not, and the blocks it tells of.

    They are those that the gateway believes: what its filters drop is not among them.
    """

    tunnel: str
    age: int | None
    blocks: tuple[str, ...]


def neighbours(file: Path, *where: str) -> tuple[Neighbour, ...]:
    """Return every neighbour that FRR's settings in a file name, none where there is no file; `where` is for vtysh."""
    named = _NEIGHBOUR.findall(file.read_text()) if file.exists() else []
    return spoken(named, _asked(*where)) if named else ()


def spoken(named: list[tuple[str, str]], told: str) -> tuple[Neighbour, ...]:
    """Return the neighbours, by address and tunnel, as vtysh tells of them: those it says nothing of are down."""
    found: dict[str, Mapping[str, object]] = {key: each for part in _documents(told) for key, each in part.items()}
    peers, routes = found.get("peers", {}), found.get("routes", {})
    return tuple(Neighbour(tunnel, _age(peers.get(address)), _blocks(routes, address)) for address, tunnel in named)


def _age(peer: object) -> int | None:
    if not isinstance(peer, dict) or peer.get("state") != "Established":
        return None
    return int(peer["peerUptimeMsec"]) // 1000


def _blocks(routes: Mapping[str, object], address: str) -> tuple[str, ...]:
    return tuple(sorted(block for block, ways in routes.items() if address in _tellers(ways)))


def _tellers(ways: object) -> set[object]:
    return {way.get("peerId") for way in ways if isinstance(way, dict)} if isinstance(ways, list) else set()


def _documents(told: str) -> Iterator[dict[str, Mapping[str, object]]]:
    """Yield the tables of every JSON document in a text: vtysh writes one for each question, and a word between."""
    place = told.find("{")
    while place >= 0:
        try:
            document, end = _JSON.raw_decode(told, place)
        except ValueError:
            return
        yield {key: each for key, each in document.items() if isinstance(each, dict)}
        place = told.find("{", end)


def _asked(*where: str) -> str:
    command = ["vtysh", *where, "-c", _PEERS, "-c", _ROUTES]
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", check=False, timeout=_SECONDS)  # noqa: S603
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


SWANCTL = Path("/usr/sbin/swanctl")
# Where each charon takes its orders.
SOCKETS = Path("/run/bedplate-ipsec")


@dataclass(frozen=True)
class Answers:
    """Whether each daemon of tunnels answers, by its name; `tunnels` is None where there is no such daemon."""

    charons: dict[str, bool]
    tunnels: tuple[Tunnel, ...] | None


def answers(files: Path, sockets: Path = SOCKETS) -> Answers:
    """Ask the charon of every folder in `files`, and any other that listens, all at once."""
    wanted = {table.parent.name: _answering_names(table.read_text()) for table in files.glob("*/table")}
    names = sorted({*wanted, *(socket.stem for socket in sockets.glob("*.vici"))})
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        told = dict(zip(names, pool.map(lambda name: _told(sockets / f"{name}.vici"), names), strict=True))
    # What is silent and has no files is a socket that a daemon left behind when it went.
    here = {name: each for name, each in told.items() if name in wanted or each is not None}
    found = tuple(one for name, each in here.items() for one in _whole(name, each or (), wanted.get(name, ())))
    return Answers({name: each is not None for name, each in here.items()}, found if here else None)


def _answering_names(table: str) -> tuple[str, ...]:
    """Return the first word of each line: the tunnels of a charon's table."""
    return tuple(line.split()[0] for line in table.splitlines() if line.strip())


def _whole(charon: str, told: Iterable[Tunnel], wanted: Iterable[str]) -> tuple[Tunnel, ...]:
    known = tuple(replace(each, charon=charon) for each in told)
    missing = (name for name in wanted if name not in {each.name for each in known})
    return (*known, *(Tunnel(name, None, 0, 0, None, charon) for name in missing))


def _told(socket: Path) -> tuple[Tunnel, ...] | None:
    known = _list("--list-conns", socket)
    standing = None if known is None else _list("--list-sas", socket)
    return None if known is None or standing is None else carried(known, standing)


def _list(what: str, socket: Path) -> str | None:
    command = [str(SWANCTL), what, "--raw", "--uri", f"unix://{socket}"]
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", check=False, timeout=_SECONDS)  # noqa: S603
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


@dataclass(frozen=True)
class Status:
    """What a gateway says of itself; times are Unix time by its own clock, which shows `time`.

    `laptops` holds the sessions of each daemon that is to run here, None where it is down. `tunnels` is None where
    there is no daemon of tunnels, `certificate`, `crl` and `number`, which is the list's, where there is none that can
    be read. `seen` holds when each laptop was last connected here. `charons` tells which daemons of tunnels answer,
    `bgp` whom those that are to speak BGP reach, None where that is not told; `owed` what daemons were not told yet.
    `peer_certificate` and `peer_crl` are when the first of those ends by which gateways know each other at tunnels;
    None where they have keys.
    """

    time: int
    laptops: dict[str, tuple[Session, ...] | None]
    certificate: int | None
    crl: int | None
    tunnels: tuple[Tunnel, ...] | None
    seen: Seen = field(default_factory=dict)
    number: int | None = None
    charons: dict[str, bool] = field(default_factory=dict)
    bgp: tuple[Neighbour, ...] | None = None
    owed: Owed = NOTHING
    peer_certificate: int | None = None
    peer_crl: int | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON's own types."""
        return {**asdict(self), "owed": self.owed.document()}


def status(place: Place) -> Status:
    """Return how this gateway is."""
    served = [each for each in TRANSPORTS if (place.settings / f"{each}.conf").exists()]
    laptops = {each: _sessions(place, each) for each in served}
    standing = answers(place.tunnels)
    now = int(time.time())
    return Status(
        time=now,
        laptops=laptops,
        certificate=_read(lambda: certificate_end(place.certificate)) if served else None,
        crl=_read(lambda: crl_end(place.crl)) if served else None,
        tunnels=standing.tunnels,
        peer_certificate=_earliest(certificate_end, place.papers("x509/*.crt")),
        peer_crl=_earliest(crl_end, place.papers("x509crl/*.crl")),
        seen=seen(place.seen, (each for told in laptops.values() for each in told or ()), now),
        number=_read(lambda: crl_number(place.crl)) if served else None,
        charons=standing.charons,
        bgp=neighbours(place.bgp),
        owed=read_owed(place.owed),
    )


def _sessions(place: Place, transport: str) -> tuple[Session, ...] | None:
    try:
        return sessions(place.socket(transport))
    except Trouble:
        return None


def _earliest(end: Callable[[Path], int], files: Iterable[Path]) -> int | None:
    """Return when the first of some files ends; one that cannot be read ended long ago."""
    return min((_read(partial(end, file)) or 0 for file in files), default=None)


def _read(moment: Callable[[], int]) -> int | None:
    try:
        return moment()
    except Refusal:
        return None


Row = tuple[str, str, int]
# What has ended long ago: an alarm on dates rings for a file that is not there, too.
_NEVER = 0
_ABOUT = {
    "bedplate_vpn_written_time_seconds": "When this was written, in Unix time.",
    "bedplate_laptops_up": "Whether the daemon of a transport answers.",
    "bedplate_laptops_owed": "Sessions to end and certificates to take up of which a daemon was not told yet.",
    "bedplate_laptops_sessions": "Laptops that are connected.",
    "bedplate_laptops_received_bytes": "Bytes from a laptop in its session.",
    "bedplate_laptops_sent_bytes": "Bytes to a laptop in its session.",
    "bedplate_laptops_last_packet_time_seconds": "When a laptop last sent or got a packet, in Unix time.",
    "bedplate_laptops_certificate_end_time_seconds": "When the gateway's certificate ends, in Unix time; 0 for none.",
    "bedplate_laptops_crl_end_time_seconds": "When the list of revoked certificates ends, in Unix time; 0 for none.",
    "bedplate_laptops_crl_number": "The number of the list of revoked certificates; 0 for none.",
    "bedplate_tunnels_answering": "Whether a daemon of tunnels answers.",
    "bedplate_tunnels_certificate_end_time_seconds": "When the gateway's certificate for tunnels ends, in Unix time.",
    "bedplate_tunnels_crl_end_time_seconds": "When the list that judges certificates of tunnels ends, in Unix time.",
    "bedplate_tunnel_up": "Whether a tunnel has an association.",
    "bedplate_tunnel_age_seconds": "How long a tunnel's association stands.",
    "bedplate_tunnel_received_bytes": "Bytes that came in by a tunnel's association.",
    "bedplate_tunnel_sent_bytes": "Bytes that went out by a tunnel's association.",
    "bedplate_tunnel_idle_seconds": "How long no packet has come in by a tunnel that stands.",
    "bedplate_tunnel_bgp_up": "Whether BGP stands with a tunnel's far end.",
    "bedplate_tunnel_bgp_blocks": "Blocks that a tunnel's far end tells of, and that are believed.",
}


def metrics_text(status: Status) -> str:
    """Return the status as Prometheus's text format, each name with what it means before its values."""
    written: Row = ("bedplate_vpn_written_time_seconds", "", status.time)
    rows = [written, *_laptops(status), *_keys(status), *_papers(status), *_tunnels(status), *_bgp(status)]
    return "".join(_family(name, [row for row in rows if row[0] == name]) for name in _ABOUT)


def write_metrics(file: Path, status: Status) -> None:
    """Put the text at a path whole, as the collector may read it at any moment."""
    put(file, metrics_text(status))


def _laptops(status: Status) -> Iterator[Row]:
    for transport, sessions in status.laptops.items():
        served = f'transport="{transport}"'
        yield "bedplate_laptops_up", served, int(sessions is not None)
        yield "bedplate_laptops_sessions", served, len(sessions or ())
        for each in sessions or ():
            whose = f'{served},laptop="{each.name}"'
            yield "bedplate_laptops_received_bytes", whose, each.received
            yield "bedplate_laptops_sent_bytes", whose, each.sent
            if each.last is not None:
                yield "bedplate_laptops_last_packet_time_seconds", whose, each.last


def _keys(status: Status) -> Iterator[Row]:
    if not status.laptops:
        return
    yield "bedplate_laptops_owed", "", len(status.owed.cut) + len(status.owed.anew)
    yield "bedplate_laptops_certificate_end_time_seconds", "", status.certificate or _NEVER
    yield "bedplate_laptops_crl_end_time_seconds", "", status.crl or _NEVER
    yield "bedplate_laptops_crl_number", "", status.number or 0


def _papers(status: Status) -> Iterator[Row]:
    if status.peer_certificate is not None:
        yield "bedplate_tunnels_certificate_end_time_seconds", "", status.peer_certificate
    if status.peer_crl is not None:
        yield "bedplate_tunnels_crl_end_time_seconds", "", status.peer_crl


def _tunnels(status: Status) -> Iterator[Row]:
    for charon, answers in status.charons.items():
        yield "bedplate_tunnels_answering", f'charon="{charon}"', int(answers)
    for each in status.tunnels or ():
        which = f'tunnel="{each.name}"'
        yield "bedplate_tunnel_up", which, int(each.age is not None)
        yield "bedplate_tunnel_received_bytes", which, each.received
        yield "bedplate_tunnel_sent_bytes", which, each.sent
        if each.age is not None:
            yield "bedplate_tunnel_age_seconds", which, each.age
            # One by which nothing has come in yet is as old as its silence.
            yield "bedplate_tunnel_idle_seconds", which, each.age if each.idle is None else each.idle


def _bgp(status: Status) -> Iterator[Row]:
    for each in status.bgp or ():
        which = f'tunnel="{each.tunnel}"'
        yield "bedplate_tunnel_bgp_up", which, int(each.age is not None)
        yield "bedplate_tunnel_bgp_blocks", which, len(each.blocks)


def _family(name: str, rows: Iterable[Row]) -> str:
    values = "".join(f"{name}{f'{{{labels}}}' if labels else ''} {value}\n" for _, labels, value in rows)
    return f"# HELP {name} {_ABOUT[name]}\n# TYPE {name} gauge\n{values}" if values else ""
