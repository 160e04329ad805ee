"""Reports of the `vpn` commands. No report contains a private key, except the QR codes of a profile."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import segno
from segno.encoder import DataOverflowError

from bedplate.errors import BedplateError
from bedplate.programs.gateway.sessions import Session
from bedplate.programs.gateway.status import Neighbour, Status, Tunnel
from bedplate.report.columns import aligned, counted
from vpn.audit_log import Issued
from vpn.certificates import Use, device_words

if TYPE_CHECKING:
    # `vpn add` takes a third of a second, and the modules of the plan alone take a quarter.
    from bedplate.plan.record import Record
    from vpn.pki import Pki
    from vpn.push import AppliedBundle, PushedAccessList, PushedTunnels
    from vpn.status import GatewayFinding, Holder, KeysStatus


def authority_lines(pki: "Pki", root: Path | None) -> Iterator[str]:
    """Yield the folder of a new authority and its expiry date, and the next steps."""
    end = pki.authority.certificate.not_valid_after_utc
    yield f"{pki.folder.path}: certificate authority of {pki.journal.begun.fleet}, valid until {end:%Y-%m-%d}"
    if root is not None:
        yield f"root key: {root}, with {root.name}.crt. Move both offline, to two disks in two places"
    is_folder = pki.journal.begun.keys == "folder"
    keys = "its .gitignore excludes keys/" if is_folder else "private keys are in SSM parameters"
    yield f"commit the folder ({keys}): certificates can only be revoked with its journal"
    yield "next: `bedplate vpn sync` for the gateways, `bedplate vpn add USER` for each person"


def issued_lines(issued: Iterable[Issued], now: datetime) -> Iterator[str]:
    """Yield a row for each certificate, and the next commands."""
    rows = tuple(issued)
    yield from aligned(
        (
            f"+ {certificate.name}",
            f"until {certificate.until:%Y-%m-%d} ({counted((certificate.until - now).days, 'day')})",
            f"{certificate.serial:x}",
        )
        for certificate in rows
    )
    for certificate in rows:
        if certificate.use is Use.CLIENT:
            words = device_words(certificate.name)
            yield f"next: `bedplate vpn sync` to admit it, `bedplate vpn show {words}` for its profile"


def revoked_lines(revoked: Iterable[Issued]) -> Iterator[str]:
    """Yield a row for each certificate, or that none was valid."""
    rows = tuple(revoked)
    yield from aligned(
        (
            f"- {certificate.name}",
            f"revoked, was valid until {certificate.until:%Y-%m-%d}",
            f"{certificate.serial:x}",
        )
        for certificate in rows
    )
    if not rows:
        yield "nothing to revoke: the certificates have expired or are revoked already"


def replaced_gateway_lines(place: str) -> Iterator[str]:
    """Yield what an operator must do after a gateway was revoked."""
    yield f"next: rebuild the gateway in {place}; only then `bedplate vpn sync` sends it the new keys"
    yield "next: `bedplate vpn show USER` for each laptop: profiles with the previous tls-crypt-v2 key cannot connect"
    yield "next: `bedplate vpn tunnels --new-keys` if the gateway has tunnels"


def relisted_lines(*, is_renewed: bool) -> Iterator[str]:
    """Yield whether the revocation list was renewed."""
    yield "crl.pem renewed" if is_renewed else "crl.pem is up to date"


def updated_gateway_lines(pushed: "PushedAccessList") -> Iterator[str]:
    """Yield a row for each updated gateway, with the number of ended sessions."""
    for place, ended in sorted(pushed.cut.items()):
        sessions = sum(ended.values())
        yield f"{place}: updated" + (f", {counted(sessions, 'session')} ended" if sessions else "")


def certificate_lines(status: "KeysStatus", seen: Mapping[str, datetime]) -> Iterator[str]:
    """Yield a row for each laptop and gateway, then the revocation list, the authority and the faults."""
    yield from aligned(_row(holder, seen) for holder in status.holders)
    until = f"{status.until:%Y-%m-%d}" if status.until else "-"
    revoked = counted(status.revoked, "revoked certificate")
    yield f"crl.pem: number {status.number or '-'}, valid until {until}, {revoked}"
    yield f"certificate authority: valid until {status.authority:%Y-%m-%d}"
    yield from (f"{fault.level}: {fault.message}" for fault in status.faults)


def certificate_document(status: "KeysStatus", seen: Mapping[str, datetime]) -> dict[str, Any]:
    """Return the document of `vpn list --json`; `seen` is null for a laptop without a session."""
    return {
        "certificates": [_entry(holder, seen.get(holder.name)) for holder in status.holders],
        "crl": {
            "number": status.number,
            "until": status.until.isoformat() if status.until else None,
            "revoked": status.revoked,
        },
        "authority": {"until": status.authority.isoformat()},
        "faults": [{"level": fault.level.value, "message": fault.message} for fault in status.faults],
    }


def _row(holder: "Holder", seen: Mapping[str, datetime]) -> tuple[str, ...]:
    last = (f"seen {seen[holder.name]:%Y-%m-%d %H:%M}",) if holder.name in seen else ("-",) if seen else ()
    until = f"{holder.until:%Y-%m-%d}", counted(holder.days, "day")
    return holder.name, holder.use.value, *until, *last, holder.note


def _entry(holder: "Holder", seen: datetime | None) -> dict[str, Any]:
    times = {"until": holder.until.isoformat(), "seen": seen.isoformat() if seen else None}
    return {**asdict(holder), "serial": f"{holder.serial:x}", **times}


def address_lines(before: "Record", now: "Record") -> Iterator[str]:
    """Yield a row for each region: the recorded addresses, and the previous ones if they differ."""
    yield from aligned(
        (region, f"gateway {address}", _previous(before.gateways.get(region), address))
        for region, address in sorted(now.gateways.items())
    )
    yield from aligned(
        (region, f"resolver {_joined(addresses)}", _previous(before.resolvers.get(region), addresses))
        for region, addresses in sorted(now.resolvers.items())
    )


def _previous(before: object, now: object) -> str:
    return "" if before in {None, now} else f"was {_joined(before) if isinstance(before, tuple) else before}"


def _joined(addresses: tuple[object, ...]) -> str:
    return ", ".join(map(str, addresses))


def created_key_lines(pairs: Iterable[frozenset[str]]) -> Iterator[str]:
    """Yield a row for each new key of a tunnel."""
    yield from sorted(f"+ key of {' and '.join(sorted(pair))}" for pair in pairs)


def updated_tunnel_lines(pushed: "PushedTunnels") -> Iterator[str]:
    """Yield a row for each gateway: its tunnels, and what changed."""
    for name, applied in sorted(pushed.applied.items()):
        yield f"{name}: {counted(applied.tunnels, 'tunnel')}, {_done(applied)}"
    if any(applied.is_changed for applied in pushed.applied.values()):
        yield "next: `bedplate vpn status` shows whether the tunnels are up"


def _done(applied: "AppliedBundle") -> str:
    counts = (
        (applied.written, "file", "written"),
        (applied.removed, "file", "removed"),
        (applied.started, "unit", "started"),
    )
    done = [f"{counted(len(items), noun)} {verb}" for items, noun, verb in counts if items]
    return ", ".join(done) or "no change"


_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60
_UNITS = ("B", "kB", "MB", "GB")


def condition_lines(
    statuses: Mapping[str, Status], failures: Mapping[str, BedplateError], faults: "Iterable[GatewayFinding]"
) -> Iterator[str]:
    """Yield each gateway with its sessions and tunnels, then gateways without an answer, then the faults."""
    for name, status in statuses.items():
        yield "   ".join((name, *_heads(status)))
        yield from (f"  {line}" for line in aligned([*_laptops(status), *_tunnels(status)]))
    for name, error in failures.items():
        yield f"{name}   {error.what}"
        yield from (f"  fix  {error.fix}",) if error.fix else ()
    yield from (f"{_level(fault)}: {fault.gateway}: {fault.message}" for fault in faults)


def condition_document(
    statuses: Mapping[str, Status], failures: Mapping[str, BedplateError], faults: "Iterable[GatewayFinding]"
) -> dict[str, Any]:
    """Return the document of `vpn status --json`. Times are seconds of Unix time."""
    return {
        "gateways": {name: status.document() for name, status in statuses.items()},
        "unreached": {name: error.what for name, error in failures.items()},
        "faults": [{"gateway": fault.gateway, "level": _level(fault), "message": fault.message} for fault in faults],
    }


def _level(fault: "GatewayFinding") -> str:
    return "error" if fault.is_failing else "warning"


def _heads(status: Status) -> Iterator[str]:
    newest = "list" if status.number is None else f"list {status.number},"
    ends = {
        "certificate": status.certificate,
        newest: status.crl,
        "tunnel certificate": status.peer_certificate,
        "tunnel list": status.peer_crl,
    }
    if status.laptops:
        yield counted(sum(len(sessions or ()) for sessions in status.laptops.values()), "laptop")
    if status.tunnels:
        up = sum(tunnel.age is not None for tunnel in status.tunnels)
        yield f"{up} of {counted(len(status.tunnels), 'tunnel')} up"
    for what, end in ends.items():
        if end is not None:
            yield f"{what} {counted(max(0, end - status.time) // _DAY_S, 'day')} left"


def _laptops(status: Status) -> Iterator[tuple[str, ...]]:
    for transport, sessions in status.laptops.items():
        if sessions is None:
            yield transport, "down"
        elif not sessions:
            yield transport, "no laptops"
        for session in sessions or ():
            idle = None if session.last is None else status.time - session.last
            yield transport, session.name, session.address, *_traffic(session, status.time - session.since, idle)


def _traffic(connection: Session | Tunnel, age: int, idle: int | None) -> tuple[str, str, str]:
    last = "no packet yet" if idle is None else f"last packet {_span(idle)} ago"
    return f"for {_span(age)}", f"{_size(connection.received)} in, {_size(connection.sent)} out", last


def _tunnels(status: Status) -> Iterator[tuple[str, ...]]:
    neighbours = {neighbour.tunnel: neighbour for neighbour in status.bgp or ()}
    for tunnel in status.tunnels or ():
        yield "tunnel", tunnel.name, *_tunnel(tunnel, status.charon), *_bgp(tunnel, neighbours)


def _tunnel(tunnel: Tunnel, charon: bool | None) -> tuple[str, ...]:  # noqa: FBT001  None if it is not reported
    if tunnel.age is None:
        return ("charon does not answer" if charon is False else "down",)
    return _traffic(tunnel, tunnel.age, tunnel.idle)


def _bgp(tunnel: Tunnel, neighbours: Mapping[str, Neighbour]) -> tuple[str, ...]:
    """Return the state of BGP over a tunnel; nothing if its routes are static or it is down."""
    neighbour = neighbours.get(tunnel.name)
    if tunnel.age is None or neighbour is None:
        return ()
    if neighbour.age is None:
        return ("BGP down",)
    return (f"BGP for {_span(neighbour.age)}, {counted(len(neighbour.blocks), 'block')}",)


def _span(seconds: int) -> str:
    whole = max(0, seconds)
    for length, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if whole >= length:
            return f"{whole // length} {unit}"
    return f"{whole} s"


def _size(count: int) -> str:
    power = next((power for power in range(len(_UNITS)) if count < 1000 ** (power + 1)), len(_UNITS) - 1)
    return f"{count / 1000**power:.{min(power, 1)}f} {_UNITS[power]}"


# A code of this version (ISO/IEC 18004) is 105 modules wide and fits a terminal of 120 columns.
_MAX_VERSION = 22


def qr_code_lines(text: str) -> Iterator[str]:
    """Yield the QR codes of a text. Several codes are numbered; scanners join them by Structured Append."""
    codes = _codes(text)
    for number, code in enumerate(codes, 1):
        if len(codes) > 1:
            yield f"code {number} of {len(codes)}"
        drawing = StringIO()
        code.terminal(drawing, compact=True)
        yield from drawing.getvalue().splitlines()


def _codes(text: str) -> tuple[segno.QRCode, ...]:
    try:
        return (segno.make_qr(text, error="l", version=_MAX_VERSION, boost_error=False),)
    except DataOverflowError:
        return tuple(segno.make_sequence(text, error="l", version=_MAX_VERSION, boost_error=False))
