"""What was issued and revoked, whose certificates there are, and what gateways made of it; never a key."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import segno
from segno.encoder import DataOverflowError

from bedplate.errors import BedplateError
from bedplate.plan.record import Record
from bedplate.report.columns import aligned, counted
from vpn.certificates import DEFAULT_DEVICE, Use
from vpn.journal import Issued
from vpn.keeper.sessions import Session
from vpn.keeper.status import Neighbour, Status, Tunnel
from vpn.status import Amiss

if TYPE_CHECKING:
    from vpn.pki import Pki
    from vpn.push import Carried, CarriedTunnels, Laid
    from vpn.status import Holder, Standing


def begun_lines(pki: "Pki", root: Path | None) -> Iterator[str]:
    """Yield where the authority lies, until when it lasts, and what to commit of it."""
    end = pki.authority.certificate.not_valid_after_utc
    yield f"{pki.folder.path}: the authority of {pki.journal.begun.fleet}, until {end:%Y-%m-%d}"
    if root is not None:
        yield f"its root's key is in {root}, with {root.name}.crt: take both away, on two disks in two places"
    kept = "keys/ is left out by its .gitignore" if pki.journal.begun.keys == "folder" else "keys lie in the account"
    yield f"commit the folder: {kept}, and without its journal nobody knows whom to revoke"
    yield "next: `bedplate vpn sync` for the gateways, `bedplate vpn add USER` for each person"


def issued_lines(issued: Iterable[Issued], now: datetime) -> Iterator[str]:
    """Yield a row a certificate, and what to do with those of laptops."""
    rows = tuple(issued)
    yield from aligned(
        (
            f"+ {each.name}",
            f"until {each.until:%Y-%m-%d} ({counted((each.until - now).days, 'day')})",
            f"{each.serial:x}",
        )
        for each in rows
    )
    for each in rows:
        if each.use is Use.CLIENT:
            user, _, device = each.name.partition(".")
            which = "" if device == DEFAULT_DEVICE else f" --device {device}"
            yield f"next: `bedplate vpn sync` lets it in, `bedplate vpn show {user}{which}` prints its profile"
    if any(each.use is Use.SERVER for each in rows):
        yield "gateways take their new certificates by `bedplate vpn sync`"


def revoked_lines(revoked: Iterable[Issued]) -> Iterator[str]:
    """Yield a row a certificate, or that none counted any more."""
    rows = tuple(revoked)
    yield from aligned(
        (f"- {each.name}", f"revoked, was until {each.until:%Y-%m-%d}", f"{each.serial:x}") for each in rows
    )
    if not rows:
        yield "none of their certificates counted any more"


def relisted_lines(*, signed: bool) -> Iterator[str]:
    """Yield whether the list was signed anew."""
    yield "crl.pem is signed anew" if signed else "crl.pem is in the first half of its life"


def carried_lines(carried: "Carried") -> Iterator[str]:
    """Yield a row a gateway that was told, with the sessions that ended there."""
    for place, ended in sorted(carried.cut.items()):
        sessions = sum(ended.values())
        yield f"{place} was told" + (f", {counted(sessions, 'session')} ended" if sessions else "")


def roll_lines(standing: "Standing", seen: Mapping[str, datetime]) -> Iterator[str]:
    """Yield a row a laptop or gateway, then the list and the authority, then what is wrong with them."""
    yield from aligned(_row(holder, seen) for holder in standing.holders)
    until = f"{standing.until:%Y-%m-%d}" if standing.until else "-"
    yield f"crl.pem: list {standing.number or '-'} until {until}, {counted(standing.revoked, 'certificate')} revoked"
    yield f"the authority lasts until {standing.authority:%Y-%m-%d}"
    yield from (f"{fault.level}: {fault.message}" for fault in standing.faults)


def roll_document(standing: "Standing", seen: Mapping[str, datetime]) -> dict[str, Any]:
    """Return it as JSON's own types; `seen` is null for a laptop that was at no gateway that was asked."""
    return {
        "certificates": [_entry(holder, seen.get(holder.name)) for holder in standing.holders],
        "crl": {
            "number": standing.number,
            "until": standing.until.isoformat() if standing.until else None,
            "revoked": standing.revoked,
        },
        "authority": {"until": standing.authority.isoformat()},
        "faults": [{"level": fault.level.value, "message": fault.message} for fault in standing.faults],
    }


def _row(holder: "Holder", seen: Mapping[str, datetime]) -> tuple[str, ...]:
    there = (f"seen {seen[holder.name]:%Y-%m-%d %H:%M}",) if holder.name in seen else ("-",) if seen else ()
    until = f"{holder.until:%Y-%m-%d}", counted(holder.days, "day")
    return holder.name, holder.use.value, *until, *there, holder.note


def _entry(holder: "Holder", seen: datetime | None) -> dict[str, Any]:
    return {
        "name": holder.name,
        "use": holder.use.value,
        "serial": f"{holder.serial:x}",
        "until": holder.until.isoformat(),
        "days": holder.days,
        "slot": holder.slot,
        "seen": seen.isoformat() if seen else None,
        "note": holder.note,
    }


def door_lines(before: Record, now: Record) -> Iterator[str]:
    """Yield a row a region: what the lock holds now, and what it held where that was another."""
    yield from aligned(
        (region, f"gateway {address}", _was(before.gateways.get(region), address))
        for region, address in sorted(now.gateways.items())
    )
    yield from aligned(
        (region, f"resolver {_listed(addresses)}", _was(before.resolvers.get(region), addresses))
        for region, addresses in sorted(now.resolvers.items())
    )


def _was(before: object, now: object) -> str:
    return "" if before in {None, now} else f"was {_listed(before) if isinstance(before, tuple) else before}"


def _listed(addresses: tuple[object, ...]) -> str:
    return ", ".join(map(str, addresses))


def made_key_lines(made: Iterable[frozenset[str]]) -> Iterator[str]:
    """Yield a row a key that was made for two gateways."""
    yield from sorted(f"+ a key between {' and '.join(sorted(pair))}" for pair in made)


def carried_tunnel_lines(carried: "CarriedTunnels") -> Iterator[str]:
    """Yield a row a gateway that has its tunnels, and what was changed there."""
    for name, laid in sorted(carried.laid.items()):
        yield f"{name}: {counted(laid.tunnels, 'tunnel')}, {_done(laid)}"
    if any(laid.is_news for laid in carried.laid.values()):
        yield "next: `bedplate vpn status` says whether they carry"


def _done(laid: "Laid") -> str:
    counts = (
        (laid.written, "file", "written"),
        (laid.removed, "file", "taken away"),
        (laid.started, "unit", "started"),
    )
    done = [f"{counted(len(each), noun)} {verb}" for each, noun, verb in counts if each]
    return ", ".join(done) or "nothing to change"


_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60
_UNITS = ("B", "kB", "MB", "GB")


def condition_lines(
    found: Mapping[str, Status], failures: Mapping[str, BedplateError], wrong: Iterable[Amiss]
) -> Iterator[str]:
    """Yield each gateway with its sessions and tunnels, then those that were not reached, then what is amiss."""
    for name, status in found.items():
        yield "   ".join((name, *_heads(status)))
        yield from (f"  {line}" for line in aligned([*_laptops(status), *_tunnels(status)]))
    yield from (f"{name}   {error.what}" for name, error in failures.items())
    yield from (f"{'error' if each.is_failing else 'warning'}: {each.gateway}: {each.message}" for each in wrong)


def condition_document(
    found: Mapping[str, Status], failures: Mapping[str, BedplateError], wrong: Iterable[Amiss]
) -> dict[str, Any]:
    """Return the same as JSON's own types; times are Unix time."""
    return {
        "gateways": {name: status.document() for name, status in found.items()},
        "unreached": {name: error.what for name, error in failures.items()},
        "faults": [
            {"gateway": each.gateway, "level": "error" if each.is_failing else "warning", "message": each.message}
            for each in wrong
        ],
    }


def _heads(status: Status) -> Iterator[str]:
    newest = "list" if status.number is None else f"list {status.number},"
    ends = {
        "certificate": status.certificate,
        newest: status.crl,
        "tunnels' certificate": status.peer_certificate,
        "tunnels' list": status.peer_crl,
    }
    for what, end in ends.items():
        if end is not None:
            yield f"{what} {counted(max(0, end - status.time) // _DAY_S, 'day')} left"


def _laptops(status: Status) -> Iterator[tuple[str, ...]]:
    for transport, sessions in status.laptops.items():
        if sessions is None:
            yield transport, "down"
        elif not sessions:
            yield transport, "no laptops"
        for each in sessions or ():
            yield transport, each.name, each.address, *_session(each, status.time)


def _session(each: Session, now: int) -> tuple[str, ...]:
    last = "no packet yet" if each.last is None else f"last packet {_span(now - each.last)} ago"
    return f"for {_span(now - each.since)}", f"{_size(each.received)} in, {_size(each.sent)} out", last


def _tunnels(status: Status) -> Iterator[tuple[str, ...]]:
    spoken = {each.tunnel: each for each in status.bgp or ()}
    for each in status.tunnels or ():
        yield "tunnel", each.name, *_tunnel(each, status.charon), *_bgp(each, spoken)


def _tunnel(each: Tunnel, charon: bool | None) -> tuple[str, ...]:  # noqa: FBT001  None where it is not reported
    if each.age is None:
        return ("its daemon does not answer" if charon is False else "down",)
    last = "no packet yet" if each.idle is None else f"last packet {_span(each.idle)} ago"
    return f"for {_span(each.age)}", f"{_size(each.received)} in, {_size(each.sent)} out", last


def _bgp(each: Tunnel, spoken: Mapping[str, Neighbour]) -> tuple[str, ...]:
    """Return what BGP does by a tunnel that stands; nothing where its routes are fixed."""
    neighbour = spoken.get(each.name)
    if each.age is None or neighbour is None:
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
    power = next((each for each in range(len(_UNITS)) if count < 1000 ** (each + 1)), len(_UNITS) - 1)
    return f"{count / 1000**power:.{min(power, 1)}f} {_UNITS[power]}"


# A code of this version (ISO/IEC 18004) is 105 modules wide: a terminal of 120 columns shows it whole.
_WIDEST = 22


def code_lines(text: str) -> Iterator[str]:
    """Yield the lines of each code; several are numbered, and belong together by Structured Append."""
    codes = _codes(text)
    for number, code in enumerate(codes, 1):
        if len(codes) > 1:
            yield f"{number} of {len(codes)}"
        drawn = StringIO()
        code.terminal(drawn, compact=True)
        yield from drawn.getvalue().splitlines()


def _codes(text: str) -> tuple[segno.QRCode, ...]:
    try:
        return (segno.make_qr(text, error="l", version=_WIDEST, boost_error=False),)
    except DataOverflowError:
        return tuple(segno.make_sequence(text, error="l", version=_WIDEST, boost_error=False))
