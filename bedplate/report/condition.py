"""How gateways are, as lines and as a document; what is amiss comes last, where it is seen."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bedplate.errors import BedplateError
from bedplate.report.columns import aligned, counted
from vpn.condition import Amiss
from vpn.keeper.bgp import Neighbour
from vpn.keeper.sessions import Session
from vpn.keeper.status import Status
from vpn.keeper.tunnels import Tunnel

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
        yield "tunnel", each.name, *_tunnel(each, status.charons), *_bgp(each, spoken)


def _tunnel(each: Tunnel, charons: Mapping[str, bool]) -> tuple[str, ...]:
    if each.age is None:
        return ("down" if charons.get(each.charon, True) else "its daemon does not answer",)
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
