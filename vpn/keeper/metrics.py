"""How a gateway is, in the text that Prometheus reads: docs/vpn.md lists the names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from .status import Status
from .text_file import put

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
