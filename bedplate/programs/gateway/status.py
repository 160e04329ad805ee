"""Status of a gateway: sessions of laptops, tunnels, BGP neighbours, end dates of certificates; also as metrics."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from ..program import ProgramError, output, run, write_text
from .access_list import NOTHING_PENDING, PendingActions, read_pending
from .certificate import certificate_end, crl_end, crl_number
from .paths import TRANSPORTS, GatewayPaths, IncompleteError, RejectedError
from .sessions import LastSeen, Session, Starts, read_sessions, read_starts, update_last_seen

_TIMEOUT_S = 5
SWANCTL = Path("/usr/sbin/swanctl")
CHARON_SOCKET = Path("/run/bedplate-ipsec/tunnels.vici")
# A section of swanctl's --raw output. A value is a text, a list joined by blanks, or a section.
Section = dict[str, "str | Section"]
_WORD = re.compile(r"[{}\[\]]|[^\s{}\[\]=]+=?|=")


@dataclass(frozen=True)
class Tunnel:
    """A connection of charon: seconds since its IKE association was established, and since the last received packet.

    Both are None, and the bytes 0, without an association. `unsent` are the seconds since the last sent packet, or
    since its child association exists; None if an older agent did not report it.
    """

    name: str
    age: int | None
    received: int
    sent: int
    idle: int | None
    unsent: int | None = None


@dataclass(frozen=True)
class Charon:
    """Whether charon answers, and its tunnels; both are None on a gateway without tunnels."""

    answers: bool | None
    tunnels: tuple[Tunnel, ...] | None


def read_charon(table: Path, socket: Path = CHARON_SOCKET) -> Charon:
    """Return what charon reports; tunnels of the table that it does not report are down."""
    tunnels = _read_tunnels(socket)
    if tunnels is None and not table.exists():
        return Charon(None, None)
    reported = {tunnel.name for tunnel in tunnels or ()}
    missing = (name for name in _table_names(table) if name not in reported)
    return Charon(
        answers=tunnels is not None,
        tunnels=(*(tunnels or ()), *(Tunnel(name, None, 0, 0, None) for name in missing)),
    )


def _table_names(table: Path) -> list[str]:
    """Return the first word of each line: the names of the tunnels."""
    return [line.split()[0] for line in table.read_text().splitlines() if line.strip()] if table.exists() else []


def _read_tunnels(socket: Path) -> tuple[Tunnel, ...] | None:
    """Return charon's tunnels, or None if it does not answer."""
    connections = _run_swanctl("--list-conns", socket)
    associations = None if connections is None else _run_swanctl("--list-sas", socket)
    return None if connections is None or associations is None else parse_tunnels(connections, associations)


def _run_swanctl(command: str, socket: Path) -> str | None:
    try:
        return output(str(SWANCTL), command, "--raw", "--uri", f"unix://{socket}", seconds=_TIMEOUT_S)
    except ProgramError:
        return None


def parse_tunnels(connections: str, associations: str) -> tuple[Tunnel, ...]:
    """Return the tunnels in the output of `--list-conns --raw` and `--list-sas --raw`."""
    established = list(_parse_events(associations))
    return tuple(
        _make_tunnel(name, [section for section_name, section in established if section_name == name])
        for name, _ in _parse_events(connections)
    )


def _make_tunnel(name: str, associations: list[Section]) -> Tunnel:
    children = [child for association in associations for child in _subsections(association.get("child-sas"))]
    ages = [int(_text(section, "established")) for section in associations if section.get("state") == "ESTABLISHED"]
    idle = [int(_text(child, "use-in")) for child in children if "use-in" in child]
    unsent = [child.get("use-out", child.get("install-time")) for child in children]
    return Tunnel(
        name=name,
        age=max(ages, default=None),
        received=sum(int(_text(child, "bytes-in")) for child in children),
        sent=sum(int(_text(child, "bytes-out")) for child in children),
        idle=min(idle, default=None),
        unsent=min((int(seconds) for seconds in unsent if isinstance(seconds, str)), default=None),
    )


def _text(section: Section, key: str) -> str:
    value = section.get(key, "0")
    return value if isinstance(value, str) else "0"


def _subsections(section: str | Section | None) -> list[Section]:
    return [value for value in section.values() if isinstance(value, dict)] if isinstance(section, dict) else []


def _parse_events(output: str) -> Iterator[tuple[str, Section]]:
    """Yield name and section of each connection or association."""
    for line in output.splitlines():
        _, event, text = line.partition(" event ")
        if event:
            sections = _parse_section(iter(_WORD.findall(text)[1:]))
            yield from ((name, section) for name, section in sections.items() if isinstance(section, dict))


def _parse_section(words: Iterator[str]) -> Section:
    """Return a section: `key=value`, `key=[list]` and `key {section}`, up to its closing brace."""
    section: Section = {}
    key = ""
    for word in words:
        if word == "}":
            return section
        if word == "{":
            section[key] = _parse_section(words)
        elif word == "[":
            section[key] = " ".join(iter(lambda: next(words), "]"))
        elif word.endswith("="):
            key = word[:-1]
            section[key] = ""
        elif section.get(key) == "":
            section[key] = word
        else:
            key = word
    return section


_PEERS, _ROUTES = "show bgp ipv4 unicast summary json", "show bgp ipv4 unicast json"
_NEIGHBOUR = re.compile(r"^ *neighbor (\S+) description (\S+)$", re.MULTILINE)
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class Neighbour:
    """The BGP neighbour in a tunnel: seconds since the session is established, None if it is not, and accepted routes.

    Routes that the gateway's filters drop are not in `blocks`.
    """

    tunnel: str
    age: int | None
    blocks: tuple[str, ...]


def read_neighbours(frr_conf: Path, *options: str) -> tuple[Neighbour, ...]:
    """Return the neighbours in FRR's configuration, none without the file; `options` are passed to vtysh."""
    configured = _NEIGHBOUR.findall(frr_conf.read_text()) if frr_conf.exists() else []
    if not configured:
        return ()
    try:
        text = run("vtysh", *options, "-c", _PEERS, "-c", _ROUTES, seconds=_TIMEOUT_S).text
    except ProgramError:
        text = ""
    return parse_neighbours(configured, text)


def parse_neighbours(configured: list[tuple[str, str]], output: str) -> tuple[Neighbour, ...]:
    """Return the neighbours, given by address and tunnel, with their state in vtysh's output; missing ones are down."""
    tables: dict[str, Mapping[str, object]] = {}
    for document in _json_documents(output):
        tables |= {key: table for key, table in document.items() if isinstance(table, dict)}
    peers, routes = tables.get("peers", {}), tables.get("routes", {})
    return tuple(
        Neighbour(tunnel, _session_age(peers.get(address)), _accepted_blocks(routes, address))
        for address, tunnel in configured
    )


def _session_age(peer: object) -> int | None:
    if not isinstance(peer, dict) or peer.get("state") != "Established":
        return None
    return int(peer["peerUptimeMsec"]) // 1000


def _accepted_blocks(routes: Mapping[str, object], address: str) -> tuple[str, ...]:
    return tuple(sorted(block for block, paths in routes.items() if address in _peer_ids(paths)))


def _peer_ids(paths: object) -> set[object]:
    return {path.get("peerId") for path in paths if isinstance(path, dict)} if isinstance(paths, list) else set()


def _json_documents(output: str) -> Iterator[dict[str, object]]:
    """Yield every JSON document of a text: vtysh prints one for each command, and other words between them."""
    position = output.find("{")
    while position >= 0:
        try:
            document, end = _JSON.raw_decode(output, position)
        except ValueError:
            return
        yield document
        position = output.find("{", end)


# The end date of a missing file: the alarm on end dates then covers missing files too.
_MISSING = 0


@dataclass(frozen=True)
class Status:
    """The status of a gateway; moments are Unix time by the gateway's clock, which shows `time`.

    `laptops` holds the sessions of each OpenVPN daemon, None for one that is down. `certificate`, `crl` and `number`,
    which is the revocation list's, are None if the file cannot be read. `charon` is whether charon answers; `charon`
    and `tunnels` are None on a gateway without tunnels. `seen` holds when each laptop was last connected. `bgp` is None
    if an older agent did not report it. `owed` holds pending actions of the OpenVPN daemons. `peer_certificate` and
    `peer_crl` are the earliest end dates of the tunnels' certificates and lists, None for tunnels with shared keys.
    `starts` holds when, and from where, each laptop has begun its last sessions, if these were short.
    """

    time: int
    laptops: dict[str, tuple[Session, ...] | None]
    certificate: int | None
    crl: int | None
    tunnels: tuple[Tunnel, ...] | None
    seen: LastSeen = field(default_factory=dict)
    number: int | None = None
    charon: bool | None = None
    bgp: tuple[Neighbour, ...] | None = None
    owed: PendingActions = NOTHING_PENDING
    peer_certificate: int | None = None
    peer_crl: int | None = None
    starts: Starts = field(default_factory=dict)

    @property
    def is_serving(self) -> bool:
        """Whether laptops can connect: each daemon answers, and the certificate and the revocation list are valid."""
        ends = (self.certificate or _MISSING, self.crl or _MISSING)
        return bool(self.laptops) and None not in self.laptops.values() and min(ends) > self.time

    def document(self) -> dict[str, object]:
        """Return the status as JSON types."""
        return {**asdict(self), "owed": self.owed.document()}


def read_status(paths: GatewayPaths) -> Status:
    """Return the status of this gateway."""
    transports = [transport for transport in TRANSPORTS if (paths.settings / f"{transport}.conf").exists()]
    laptops = {transport: _sessions_or_none(paths, transport) for transport in transports}
    charon = read_charon(paths.tunnel_table)
    now = int(time.time())
    connected = (session for sessions in laptops.values() for session in sessions or ())
    return Status(
        time=now,
        laptops=laptops,
        certificate=_value_or_none(lambda: certificate_end(paths.certificate)) if transports else None,
        crl=_value_or_none(lambda: crl_end(paths.crl)) if transports else None,
        tunnels=charon.tunnels,
        peer_certificate=_earliest_end(certificate_end, paths.charon_files("x509/*.crt")),
        peer_crl=_earliest_end(crl_end, paths.charon_files("x509crl/*.crl")),
        seen=update_last_seen(paths.last_seen, connected, now),
        number=_value_or_none(lambda: crl_number(paths.crl)) if transports else None,
        charon=charon.answers,
        bgp=read_neighbours(paths.frr_conf),
        owed=read_pending(paths.pending_actions),
        starts=read_starts(paths.starts),
    )


def _sessions_or_none(paths: GatewayPaths, transport: str) -> tuple[Session, ...] | None:
    try:
        return read_sessions(paths.socket(transport))
    except IncompleteError:
        return None


def _earliest_end(end_of: Callable[[Path], int], files: Iterable[Path]) -> int | None:
    """Return the earliest end of some files, 0 if one cannot be read, None without files."""
    return min((_value_or_none(partial(end_of, file)) or 0 for file in files), default=None)


def _value_or_none(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except RejectedError:
        return None


Metric = tuple[str, str, int]
_HELP = {
    "bedplate_vpn_written_time_seconds": "When these metrics were written, in Unix time.",
    "bedplate_laptops_serving": "Whether laptops can connect: all daemons answer, with valid certificate and list.",
    "bedplate_laptops_up": "Whether the daemon of a transport answers.",
    "bedplate_laptops_owed": "Pending actions of the daemons: sessions to end, certificates to load.",
    "bedplate_laptops_sessions": "Connected laptops.",
    "bedplate_laptops_received_bytes": "Bytes received from a laptop in its session.",
    "bedplate_laptops_sent_bytes": "Bytes sent to a laptop in its session.",
    "bedplate_laptops_last_packet_time_seconds": "Time of the last packet from or to a laptop, in Unix time.",
    "bedplate_laptops_certificate_end_time_seconds": "End of the gateway's certificate, in Unix time; 0 if missing.",
    "bedplate_laptops_crl_end_time_seconds": "End of the revocation list, in Unix time; 0 if missing.",
    "bedplate_laptops_crl_number": "Number of the revocation list; 0 if missing.",
    "bedplate_tunnels_answering": "Whether charon answers.",
    "bedplate_tunnels_certificate_end_time_seconds": "End of the tunnels' certificate, in Unix time.",
    "bedplate_tunnels_crl_end_time_seconds": "End of the tunnels' revocation list, in Unix time.",
    "bedplate_tunnel_up": "Whether a tunnel has an IKE association.",
    "bedplate_tunnel_age_seconds": "Age of a tunnel's IKE association.",
    "bedplate_tunnel_received_bytes": "Bytes received through a tunnel's association.",
    "bedplate_tunnel_sent_bytes": "Bytes sent through a tunnel's association.",
    "bedplate_tunnel_idle_seconds": "Time since the last packet was received through a tunnel.",
    "bedplate_tunnel_unsent_seconds": "Time since the last packet was sent through a tunnel.",
    "bedplate_tunnel_bgp_up": "Whether the BGP session in a tunnel is established.",
    "bedplate_tunnel_bgp_blocks": "Routes accepted from the BGP neighbour in a tunnel.",
}


def metrics_text(status: Status) -> str:
    """Return the status in Prometheus's text format."""
    written: Metric = ("bedplate_vpn_written_time_seconds", "", status.time)
    metrics = [
        written,
        *_session_metrics(status),
        *_laptop_gateway_metrics(status),
        *_tunnel_certificate_metrics(status),
        *_tunnel_metrics(status),
        *_bgp_metrics(status),
    ]
    return "".join(_format_family(name, [metric for metric in metrics if metric[0] == name]) for name in _HELP)


def write_metrics(file: Path, status: Status) -> None:
    """Write the metrics atomically: the collector may read the file at any moment."""
    write_text(file, metrics_text(status))


def _session_metrics(status: Status) -> Iterator[Metric]:
    for transport, sessions in status.laptops.items():
        labels = f'transport="{transport}"'
        yield "bedplate_laptops_up", labels, int(sessions is not None)
        yield "bedplate_laptops_sessions", labels, len(sessions or ())
        for session in sessions or ():
            laptop = f'{labels},laptop="{session.name}"'
            yield "bedplate_laptops_received_bytes", laptop, session.received
            yield "bedplate_laptops_sent_bytes", laptop, session.sent
            if session.last is not None:
                yield "bedplate_laptops_last_packet_time_seconds", laptop, session.last


def _laptop_gateway_metrics(status: Status) -> Iterator[Metric]:
    if not status.laptops:
        return
    yield "bedplate_laptops_serving", "", int(status.is_serving)
    yield "bedplate_laptops_owed", "", len(status.owed.cut) + len(status.owed.restart)
    yield "bedplate_laptops_certificate_end_time_seconds", "", status.certificate or _MISSING
    yield "bedplate_laptops_crl_end_time_seconds", "", status.crl or _MISSING
    yield "bedplate_laptops_crl_number", "", status.number or 0


def _tunnel_certificate_metrics(status: Status) -> Iterator[Metric]:
    if status.peer_certificate is not None:
        yield "bedplate_tunnels_certificate_end_time_seconds", "", status.peer_certificate
    if status.peer_crl is not None:
        yield "bedplate_tunnels_crl_end_time_seconds", "", status.peer_crl


def _tunnel_metrics(status: Status) -> Iterator[Metric]:
    if status.charon is not None:
        yield "bedplate_tunnels_answering", 'charon="tunnels"', int(status.charon)
    for tunnel in status.tunnels or ():
        labels = f'tunnel="{tunnel.name}"'
        yield "bedplate_tunnel_up", labels, int(tunnel.age is not None)
        yield "bedplate_tunnel_received_bytes", labels, tunnel.received
        yield "bedplate_tunnel_sent_bytes", labels, tunnel.sent
        if tunnel.age is not None:
            yield "bedplate_tunnel_age_seconds", labels, tunnel.age
            # Without any received packet, a tunnel is idle since it was established.
            yield "bedplate_tunnel_idle_seconds", labels, tunnel.age if tunnel.idle is None else tunnel.idle
            yield "bedplate_tunnel_unsent_seconds", labels, tunnel.age if tunnel.unsent is None else tunnel.unsent


def _bgp_metrics(status: Status) -> Iterator[Metric]:
    for neighbour in status.bgp or ():
        labels = f'tunnel="{neighbour.tunnel}"'
        yield "bedplate_tunnel_bgp_up", labels, int(neighbour.age is not None)
        yield "bedplate_tunnel_bgp_blocks", labels, len(neighbour.blocks)


def _format_family(name: str, metrics: Iterable[Metric]) -> str:
    values = "".join(f"{name}{f'{{{labels}}}' if labels else ''} {value}\n" for _, labels, value in metrics)
    return f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n{values}" if values else ""
