"""How a fleet's gateways are, as their keepers tell it, and what of that is amiss: a tunnel must carry, not just stand.

Pure: who asks, and how, is no matter of this module.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bedplate.plan.node import Duty, NodePlan
from vpn.keeper.owed import Owed
from vpn.keeper.status import Status
from vpn.revocation import FAILURE, WARNING
from vpn.tunnel_condition import Finding, tunnel_faults
from vpn.wanted import Wanted

# Certificates are valid from five minutes before they are signed.
SKEW_S = 240
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Amiss:
    """Something wrong at a gateway; `is_failing` where something does not carry, or will not within days."""

    gateway: str
    message: str
    is_failing: bool


def amiss(node: NodePlan, wanted: Wanted, status: Status, now: int) -> tuple[Amiss, ...]:
    """Return what is wrong with a gateway at a moment, in Unix time by the clock of whoever asks."""
    return tuple(Amiss(node.name, message, failing) for message, failing in _faults(node, wanted, status, now))


def last_seen(answers: Iterable[Status]) -> Mapping[str, datetime]:
    """Return when each laptop was last connected to any of the gateways that answered."""
    latest: dict[str, int] = {}
    for status in answers:
        latest |= {name: max(moment, latest.get(name, 0)) for name, moment in status.seen.items()}
    return {name: datetime.fromtimestamp(moment, UTC) for name, moment in latest.items()}


def _faults(node: NodePlan, wanted: Wanted, status: Status, now: int) -> Iterator[Finding]:
    if abs(status.time - now) > SKEW_S:
        yield f"its clock is off by {abs(status.time - now):,} s", True
    if Duty.LAPTOPS in node.duties:
        yield from _of_laptops(status, wanted.number)
    if node.duties & {Duty.TUNNELS, Duty.JOINT}:
        yield from tunnel_faults(wanted, status)
        yield from _of_papers(status)


def _of_laptops(status: Status, newest: int | None) -> Iterator[Finding]:
    if not status.laptops:
        yield "nothing here serves laptops: apply the role openvpn, then `bedplate vpn sync`", True
        return
    yield from ((f"nobody serves laptops over {each}", True) for each, told in status.laptops.items() if told is None)
    for what, end in (("its certificate", status.certificate), ("its list of revoked certificates", status.crl)):
        yield from _ending(what, None if end is None else end - status.time)
    if newest is not None and status.crl is not None:
        yield from _behind(status.number, newest)
    yield from _still_owed(status.owed)


def _behind(number: int | None, newest: int) -> Iterator[Finding]:
    if number is None:
        yield "it does not say which list of revoked certificates it holds: apply the role keeper to it", True
    elif number < newest:
        yield f"it holds list {number} of revoked certificates, and {newest} was signed: `bedplate vpn sync`", True
    elif number > newest:
        told = f"it holds list {number} of revoked certificates, and the newest that is known here is {newest}"
        yield f"{told}: fetch the folder of keys", False


def _still_owed(owed: Owed) -> Iterator[Finding]:
    if owed.cut:
        yield f"sessions of {', '.join(sorted(owed.cut))} are still to be ended: `bedplate vpn sync`", True
    for transport in sorted(owed.anew):
        yield f"its daemon over {transport} goes by the certificate before: `bedplate vpn sync`", True


def _of_papers(status: Status) -> Iterator[Finding]:
    """Yield what of certificates for tunnels ends; a gateway that has none knows its peers by keys."""
    ends = {"its certificate for tunnels": status.peer_certificate, "its list for tunnels": status.peer_crl}
    if any(end is not None for end in ends.values()):
        for what, end in ends.items():
            yield from _ending(what, None if end is None else end - status.time)


def _ending(what: str, left: int | None) -> Iterator[tuple[str, bool]]:
    if left is None:
        yield f"{what} is not there: `bedplate vpn sync`", True
    elif left <= 0:
        yield f"{what} has ended, and nobody gets in: `bedplate vpn sync`", True
    elif left <= WARNING.total_seconds():
        yield f"{what} ends in {left // _DAY_S} days: `bedplate vpn sync`", left <= FAILURE.total_seconds()
