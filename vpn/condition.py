"""How a fleet's gateways are, as their keepers tell it, and what of that is amiss: a tunnel must carry, not just stand.

Pure: who asks, and how, is no matter of this module.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bedplate.errors import PartError
from bedplate.plan.node import Duty, NodePlan
from vpn.keeper.sessions import Session
from vpn.keeper.status import Status
from vpn.keeper.tunnels import Tunnel
from vpn.revocation import FAILURE, WARNING

ASK = "sudo -n bedplate-vpn status"
# BGP says something each 10 s, and gateways of regions each 15 s: what is silent for six of that carries nothing.
SILENT_S = 90
# Certificates are valid from five minutes before they are signed.
SKEW_S = 240
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Amiss:
    """Something wrong at a gateway; `is_failing` where something does not carry, or will not within days."""

    gateway: str
    message: str
    is_failing: bool


def parse_status(text: str) -> Status:
    """Return what a keeper printed; PartError for anything else."""
    try:
        told = json.loads(text)
        laptops = {transport: _sessions(each) for transport, each in told["laptops"].items()}
        tunnels = None if told["tunnels"] is None else tuple(Tunnel(**each) for each in told["tunnels"])
        return Status(told["time"], laptops, told["certificate"], told["crl"], tunnels, _seen(told))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PartError("its keeper says nothing that can be read", fix="apply the role keeper to it") from None


def amiss(node: NodePlan, status: Status, now: int) -> tuple[Amiss, ...]:
    """Return what is wrong with a gateway at a moment, in Unix time by the clock of whoever asks."""
    return tuple(Amiss(node.name, message, failing) for message, failing in _faults(node, status, now))


def last_seen(answers: Iterable[Status]) -> Mapping[str, datetime]:
    """Return when each laptop was last connected to any of the gateways that answered."""
    latest: dict[str, int] = {}
    for status in answers:
        latest |= {name: max(moment, latest.get(name, 0)) for name, moment in status.seen.items()}
    return {name: datetime.fromtimestamp(moment, UTC) for name, moment in latest.items()}


def _faults(node: NodePlan, status: Status, now: int) -> Iterator[tuple[str, bool]]:
    if abs(status.time - now) > SKEW_S:
        yield f"its clock is off by {abs(status.time - now):,} s", True
    if Duty.LAPTOPS in node.duties:
        yield from _of_laptops(status)
    if node.duties & {Duty.TUNNELS, Duty.JOINT}:
        yield from _of_tunnels(status)


def _of_laptops(status: Status) -> Iterator[tuple[str, bool]]:
    if not status.laptops:
        yield "nothing here serves laptops: apply the role openvpn, then `bedplate vpn sync`", True
        return
    yield from ((f"nobody serves laptops over {each}", True) for each, told in status.laptops.items() if told is None)
    for what, end in (("its certificate", status.certificate), ("its list of revoked certificates", status.crl)):
        yield from _ending(what, None if end is None else end - status.time)


def _ending(what: str, left: int | None) -> Iterator[tuple[str, bool]]:
    if left is None:
        yield f"{what} is not there: `bedplate vpn sync`", True
    elif left <= 0:
        yield f"{what} has ended, and nobody gets in: `bedplate vpn sync`", True
    elif left <= WARNING.total_seconds():
        yield f"{what} ends in {left // _DAY_S} days: `bedplate vpn sync`", left <= FAILURE.total_seconds()


def _of_tunnels(status: Status) -> Iterator[tuple[str, bool]]:
    if not status.tunnels:
        yield "no daemon of tunnels answers: `bedplate vpn tunnels`", True
        return
    for each in status.tunnels:
        if each.age is None:
            yield f"the tunnel {each.name} is down", True
        elif each.idle is None or each.idle > SILENT_S:
            since = "yet" if each.idle is None else f"for {each.idle} s"
            yield f"the tunnel {each.name} stands, and no packet has come in by it {since}", each.age > SILENT_S


def _seen(told: dict[str, dict[str, int]]) -> dict[str, int]:
    return {name: int(moment) for name, moment in told.get("seen", {}).items()}


def _sessions(told: list[dict[str, str | int]] | None) -> tuple[Session, ...] | None:
    return None if told is None else tuple(Session(**each) for each in told)  # type: ignore[arg-type]
