"""How the VPN's keys stand: every laptop and gateway with its days left, and the list and the authority with theirs."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network

from bedplate.errors import InputError, PartError
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import TunnelPlan
from bedplate.plan.links import behind, beyond, has_transit, peers_of
from bedplate.plan.nodes import Duty, NodePlan
from vpn.authority import FAILURE, WARNING, Fault, Level, end_of, list_faults, number_of
from vpn.certificates import Use, user_of
from vpn.journal import Issued
from vpn.keeper.book import Owed
from vpn.keeper.sessions import Session
from vpn.keeper.status import Neighbour, Status, Tunnel
from vpn.pki import Pki, read_list, root_texts

# A person is told in time to renew; an authority's end is everybody's.
_SOON, _AUTHORITY_SOON = timedelta(days=14), timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Holder:
    """A laptop or a gateway, and its newest certificate; `note` says what is amiss, and is empty where nothing is."""

    name: str
    use: Use
    serial: int
    until: datetime
    days: int
    slot: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it at one moment; `faults` are of the list and the authority."""

    holders: tuple[Holder, ...]
    revoked: int
    number: int | None
    until: datetime | None
    authority: datetime
    faults: tuple[Fault, ...]

    @property
    def is_failing(self) -> bool:
        """Whether somebody is locked out, or will be within days."""
        return any(fault.level is Level.ERROR for fault in self.faults)


def standing(pki: Pki, people: Container[str], now: datetime) -> Standing:
    """Return how the keys stand, for the people of today's file."""
    found = read_list(pki)
    end = pki.authority.certificate.not_valid_after_utc
    return Standing(
        holders=tuple(_holders(pki, people, now)),
        revoked=len(tuple(pki.roll.revocations())),
        number=number_of(found) if found is not None else None,
        until=end_of(found) if found is not None else None,
        authority=end,
        faults=(*_list_faults(pki, now), *_root_faults(pki, now), *_authority_faults(end, now)),
    )


def _holders(pki: Pki, people: Container[str], now: datetime) -> Iterator[Holder]:
    for each in pki.roll.holders().values():
        left = each.until - now
        days, note = max(left.days, 0), _note(each, left, people)
        yield Holder(each.name, each.use, each.serial, each.until, days, each.slot, note)


def _note(certificate: Issued, left: timedelta, people: Container[str]) -> str:
    if certificate.use is Use.CLIENT and user_of(certificate.name) not in people:
        return "has left: `bedplate vpn sync`"
    if left <= timedelta():
        return "ended"
    return "ends soon" if left <= _SOON else ""


def _list_faults(pki: Pki, now: datetime) -> tuple[Fault, ...]:
    found = read_list(pki)
    if found is None:
        return (Fault(Level.ERROR, "crl.pem cannot be read: `bedplate vpn sync` signs a new one"),)
    behind = pki.roll.listed is None or number_of(found) != pki.roll.listed.number
    late = (Fault(Level.ERROR, "crl.pem is not the last list that was signed: `bedplate vpn sync`"),) if behind else ()
    told = list_faults(found, pki.authority.certificate, now)
    return (*late, *(Fault(fault.level, f"crl.pem {fault.message}: `bedplate vpn sync`") for fault in told))


def _root_faults(pki: Pki, now: datetime) -> tuple[Fault, ...]:
    try:
        root_texts(pki, now)
    except InputError as error:
        return (Fault(Level.ERROR, f"{error.what}: {error.fix}"),)
    return ()


def _authority_faults(end: datetime, now: datetime) -> tuple[Fault, ...]:
    if end - now > _AUTHORITY_SOON:
        return ()
    return (Fault(Level.WARNING, f"the authority ends on {end:%Y-%m-%d}, and every profile with it"),)


ASK = "sudo -n bedplate-vpn status"


def parse_status(text: str) -> Status:
    """Return what a keeper printed; PartError for anything else."""
    try:
        told = json.loads(text)
        laptops = {transport: _sessions(each) for transport, each in told["laptops"].items()}
        tunnels = None if told["tunnels"] is None else tuple(Tunnel(**each) for each in told["tunnels"])
        return Status(
            time=told["time"],
            laptops=laptops,
            certificate=told["certificate"],
            crl=told["crl"],
            tunnels=tunnels,
            seen={name: int(moment) for name, moment in told.get("seen", {}).items()},
            number=told.get("number"),
            charons=dict(told.get("charons", {})),
            bgp=_neighbours(told.get("bgp")),
            peer_certificate=told.get("peer_certificate"),
            peer_crl=told.get("peer_crl"),
            owed=_owed(told.get("owed", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PartError("its keeper says nothing that can be read", fix="apply the role keeper to it") from None


def _sessions(told: list[dict[str, str | int]] | None) -> tuple[Session, ...] | None:
    return None if told is None else tuple(Session(**each) for each in told)  # type: ignore[arg-type]


def _neighbours(told: list[dict[str, str | int | list[str]]] | None) -> tuple[Neighbour, ...] | None:
    return None if told is None else tuple(_answer_neighbour(**each) for each in told)  # type: ignore[arg-type]


def _answer_neighbour(tunnel: str, age: int | None, blocks: list[str]) -> Neighbour:
    return Neighbour(tunnel, age, tuple(blocks))


def _owed(told: dict[str, list[str]]) -> Owed:
    return Owed(frozenset(told.get("cut", ())), frozenset(told.get("anew", ())))


@dataclass(frozen=True, slots=True)
class WantedTunnel:
    """A tunnel by its name; `tells` holds what BGP is to tell by it, nothing where its routes are fixed."""

    name: str
    tells: tuple[IPv4Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """All of it: `elsewhere` is what one of the tunnels is to tell of, whichever, `number` that of the newest list.

    `number` is None where no authority was begun.
    """

    tunnels: tuple[WantedTunnel, ...] = ()
    elsewhere: tuple[IPv4Network, ...] = ()
    number: int | None = None


def wanted(plan: FleetPlan, node: NodePlan, number: int | None) -> Wanted:
    """Return what a gateway of the plan is to have; `number` is that of the authority's newest list."""
    place = node.name.partition(".")[2]
    if Duty.TUNNELS in node.duties:
        to_regions = (WantedTunnel(each.name, _told(plan, each)) for each in plan.tunnels if each.site == place)
        return Wanted((*to_regions, *_direct(plan, place)), _told_by_any(plan, place), number)
    peers = peers_of(plan, place) if Duty.JOINT in node.duties else ()
    return Wanted(tuple(WantedTunnel(each.region) for each in peers), number=number)


def _told(plan: FleetPlan, tunnel: TunnelPlan) -> tuple[IPv4Network, ...]:
    """Return the blocks of a tunnel's own region: all that its transit gateway leads to, or the VPC's alone.

    A virtual private gateway tells of its VPC, and not of what the VPC's tables lead to, as a pool of laptops.
    Source: AWS Site-to-Site VPN user guide, "Route priority and prefixes", 2026-11.
    """
    if not has_transit(plan):
        return (plan.region(tunnel.region).block,)
    return tuple(each.block for each in behind(plan, tunnel.region))


def _direct(plan: FleetPlan, site: str) -> Iterator[WantedTunnel]:
    """Yield the tunnels to sites that are joined, each of which tells of its own blocks."""
    for each in plan.directs_of(site):
        yield WantedTunnel(each.name(site), tuple(block.block for block in behind(plan, each.other(site))))


def _told_by_any(plan: FleetPlan, site: str) -> tuple[IPv4Network, ...]:
    """Return what lies behind other sites, to which each transit gateway leads by a fixed route."""
    sites = {each.name for each in plan.sites} if has_transit(plan) else set()
    return tuple(each.block for each in beyond(plan, site) if each.place in sites)


# BGP says something each 10 s, and gateways of regions each 15 s: what is silent for six of that carries nothing.
SILENT_S = 90
_CARRY = "`bedplate vpn tunnels`"
Finding = tuple[str, bool]


def tunnel_faults(wanted: Wanted, status: Status) -> Iterator[Finding]:
    """Yield each fault, and whether something does not carry by it."""
    names, told = [each.name for each in wanted.tunnels], {each.name: each for each in status.tunnels or ()}
    missing = [name for name in names if name not in told]
    if missing:
        yield f"it was not brought the tunnel{'s' * (len(missing) > 1)} {', '.join(missing)}: {_CARRY}", True
    for name, each in told.items():
        if name in names:
            yield from _standing(each, status.charons)
        else:
            yield f"the tunnel {name} is not in the plan: {_CARRY} takes it away", False
    yield from _bgp(wanted, status, told)


def _standing(tunnel: Tunnel, charons: Mapping[str, bool]) -> Iterator[Finding]:
    if not charons.get(tunnel.charon, True):
        yield f"nothing is known of the tunnel {tunnel.name}: its daemon {tunnel.charon} does not answer", True
    elif tunnel.age is None:
        yield f"the tunnel {tunnel.name} is down", True
    elif tunnel.idle is None or tunnel.idle > SILENT_S:
        since = "yet" if tunnel.idle is None else f"for {tunnel.idle} s"
        yield f"the tunnel {tunnel.name} stands, and no packet has come in by it {since}", tunnel.age > SILENT_S


def _bgp(wanted: Wanted, status: Status, told: Mapping[str, Tunnel]) -> Iterator[Finding]:
    """Yield what BGP does not do by tunnels that stand."""
    ages = {name: each.age for name, each in told.items() if each.age is not None}
    spoken = [each for each in wanted.tunnels if each.tells and each.name in ages]
    if spoken and status.bgp is None:
        yield "it does not say whom BGP reaches: apply the role keeper to it", True
        return
    neighbours = {each.tunnel: each for each in status.bgp or ()}
    for each in spoken:
        yield from _neighbour(each, neighbours.get(each.name), ages[each.name])
    yield from _elsewhere(wanted.elsewhere, [each for each in neighbours.values() if each.age is not None])


def _neighbour(tunnel: WantedTunnel, neighbour: Neighbour | None, age: int) -> Iterator[Finding]:
    if neighbour is None or neighbour.age is None:
        yield f"BGP does not stand by the tunnel {tunnel.name}", age > SILENT_S
        return
    missing = _missing(tunnel.tells, [neighbour])
    if missing:
        yield f"BGP does not tell of {missing} by the tunnel {tunnel.name}", neighbour.age > SILENT_S


def _elsewhere(blocks: Iterable[IPv4Network], neighbours: list[Neighbour]) -> Iterator[Finding]:
    missing = _missing(blocks, neighbours) if neighbours else ""
    if missing:
        yield f"BGP does not tell of {missing} by any tunnel", any((each.age or 0) > SILENT_S for each in neighbours)


def _missing(blocks: Iterable[IPv4Network], neighbours: Iterable[Neighbour]) -> str:
    told = {block for each in neighbours for block in each.blocks}
    return ", ".join(str(block) for block in blocks if str(block) not in told)


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
