"""How a gateway is, in the text that Prometheus reads: docs/vpn.md lists the names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from .status import Status

Row = tuple[str, str, int]
_ABOUT = {
    "bedplate_laptops_up": "Whether the daemon of a transport answers.",
    "bedplate_laptops_sessions": "Laptops that are connected.",
    "bedplate_laptops_received_bytes": "Bytes from a laptop in its session.",
    "bedplate_laptops_sent_bytes": "Bytes to a laptop in its session.",
    "bedplate_laptops_last_packet_time_seconds": "When a laptop last sent or got a packet, in Unix time.",
    "bedplate_laptops_certificate_end_time_seconds": "When the gateway's certificate ends, in Unix time.",
    "bedplate_laptops_crl_end_time_seconds": "When the list of revoked certificates ends, in Unix time.",
    "bedplate_tunnel_up": "Whether a tunnel has an association.",
    "bedplate_tunnel_age_seconds": "How long a tunnel's association stands.",
    "bedplate_tunnel_received_bytes": "Bytes that came in by a tunnel's association.",
    "bedplate_tunnel_sent_bytes": "Bytes that went out by a tunnel's association.",
    "bedplate_tunnel_idle_seconds": "How long no packet has come in by a tunnel.",
}


def metrics_text(status: Status) -> str:
    """Return the status as Prometheus's text format, each name with what it means before its values."""
    rows = [*_laptops(status), *_ends(status), *_tunnels(status)]
    return "".join(_family(name, [row for row in rows if row[0] == name]) for name in _ABOUT)


def write_metrics(file: Path, status: Status) -> None:
    """Put the text at a path whole, as the collector may read it at any moment."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(metrics_text(status))
    fresh.chmod(0o644)
    fresh.replace(file)


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


def _ends(status: Status) -> Iterator[Row]:
    if status.certificate is not None:
        yield "bedplate_laptops_certificate_end_time_seconds", "", status.certificate
    if status.crl is not None:
        yield "bedplate_laptops_crl_end_time_seconds", "", status.crl


def _tunnels(status: Status) -> Iterator[Row]:
    for each in status.tunnels or ():
        which = f'tunnel="{each.name}"'
        yield "bedplate_tunnel_up", which, int(each.age is not None)
        yield "bedplate_tunnel_received_bytes", which, each.received
        yield "bedplate_tunnel_sent_bytes", which, each.sent
        if each.age is not None:
            yield "bedplate_tunnel_age_seconds", which, each.age
        if each.idle is not None:
            yield "bedplate_tunnel_idle_seconds", which, each.idle


def _family(name: str, rows: Iterable[Row]) -> str:
    values = "".join(f"{name}{f'{{{labels}}}' if labels else ''} {value}\n" for _, labels, value in rows)
    return f"# HELP {name} {_ABOUT[name]}\n# TYPE {name} gauge\n{values}" if values else ""
