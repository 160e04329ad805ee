"""Findings about the VPN: the keys in fleet.pki, and the status that each gateway reports."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network

from pydantic import TypeAdapter

from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.foreign import parse_json
from bedplate.nodes.remote import MAX_OUTPUT
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import TunnelPlan
from bedplate.plan.links import has_transit, networks_accepted, networks_of_place, region_peers, remote_networks
from bedplate.plan.nodes import NodePlan, NodeRole
from bedplate.programs.gateway.paths import CHARON_UNIT
from bedplate.programs.gateway.status import Neighbour, Status, Tunnel
from bedplate.rules import Level
from vpn.audit_log import Issued
from vpn.authority import FAILURE, WARNING, Finding, crl_end, crl_findings, crl_number
from vpn.certificates import EXPIRY_WARNING, Use, is_encrypted, user_of
from vpn.pki import AUTHORITY, FOLDER, Pki, is_unchanged, read_crl, root_crl_texts

# The end of the authority affects all profiles.
_AUTHORITY_WARNING = timedelta(days=365)
_SYNC = "run `bedplate vpn sync`"
_LOCK = 'docs/vpn-keys.md, "Encrypt the keys"'


@dataclass(frozen=True, slots=True)
class Holder:
    """A laptop or gateway with its newest certificate; `note` names a problem, or is empty."""

    name: str
    use: Use
    serial: int
    until: datetime
    days: int
    slot: int | None
    note: str


@dataclass(frozen=True, slots=True)
class KeysStatus:
    """The state of all keys at one moment; `faults` concern the revocation list and the authority."""

    holders: tuple[Holder, ...]
    revoked: int
    number: int | None
    until: datetime | None
    authority: datetime
    faults: tuple[Finding, ...]

    @property
    def is_failing(self) -> bool:
        """Whether people cannot connect, or will not be able to within days."""
        return any(finding.level is Level.ERROR for finding in self.faults)


def keys_status(pki: Pki, people: Container[str], now: datetime) -> KeysStatus:
    """Return the state of all keys, for the people of the present fleet file."""
    crl = read_crl(pki)
    authority_end = pki.authority.certificate.not_valid_after_utc
    return KeysStatus(
        holders=tuple(_holders(pki, people, now)),
        revoked=len(tuple(pki.certificates.revocations())),
        number=crl_number(crl) if crl is not None else None,
        until=crl_end(crl) if crl is not None else None,
        authority=authority_end,
        faults=(*_check_crl(pki, now), *_check_root_crl(pki, now), *_check_authority_end(authority_end, now)),
    )


def _holders(pki: Pki, people: Container[str], now: datetime) -> Iterator[Holder]:
    for certificate in pki.certificates.holders().values():
        left = certificate.until - now
        yield Holder(
            name=certificate.name,
            use=certificate.use,
            serial=certificate.serial,
            until=certificate.until,
            days=max(left.days, 0),
            slot=certificate.slot,
            note=_note(certificate, left, people),
        )


def _note(certificate: Issued, left: timedelta, people: Container[str]) -> str:
    if certificate.use is Use.CLIENT and user_of(certificate.name) not in people:
        return f"not in `people`: {_SYNC}"
    if left <= timedelta():
        return "expired"
    return "expires soon" if left <= EXPIRY_WARNING[certificate.use] else ""


def _check_crl(pki: Pki, now: datetime) -> Iterator[Finding]:
    crl = read_crl(pki)
    if crl is None:
        yield Finding(Level.ERROR, f"crl.pem cannot be read: {_SYNC}")
        return
    if pki.certificates.listed is None or crl_number(crl) != pki.certificates.listed.number:
        yield Finding(Level.ERROR, f"crl.pem is not the newest revocation list: {_SYNC}")
    for finding in crl_findings(crl, pki.authority.certificate, now):
        yield Finding(finding.level, f"crl.pem {finding.message}: {_SYNC}")


def _check_root_crl(pki: Pki, now: datetime) -> Iterator[Finding]:
    try:
        root_crl_texts(pki, now)
    except InputError as error:
        yield Finding(Level.ERROR, f"{error.what}: {error.fix}")


def _check_authority_end(end: datetime, now: datetime) -> Iterator[Finding]:
    if end - now <= _AUTHORITY_WARNING:
        yield Finding(Level.WARNING, f"the authority and all profiles expire on {end:%Y-%m-%d}")


def storage_warnings(pki: Pki) -> Iterator[str]:
    """Yield warnings about the files of the authority: its private key is not encrypted, the copy of the log differs.

    Keys stay unencrypted by default, because a daily sync could not sign without a passphrase file beside them.
    """
    if pki.journal.begun.keys == FOLDER:
        try:
            text = pki.store.read(AUTHORITY)
        except BedplateError as error:
            yield f"warning: {pki.folder.keys}: {error.what}: {error.fix}"
        else:
            if text and not is_encrypted(text):
                yield f"warning: {pki.folder.keys}: the authority's key is not encrypted: {_LOCK}"
    if not is_unchanged(pki.folder, pki.journal):
        yield f"warning: journal.copy differs from journal: run `cp journal journal.copy` in {pki.folder.path}"


STATUS_COMMAND = ("sudo", "-n", "bedplate-vpn", "status")


def parse_status(text: str) -> Status:
    """Return the status that a gateway agent printed; raise PartialError if it is invalid."""
    try:
        return _parse_status(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PartialError(
            "invalid status from the gateway agent", fix="apply the role vpnagent to the gateway"
        ) from None


_STATUS = TypeAdapter(Status)
_MAX_TIME = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp())


def _parse_status(text: str) -> Status:
    if "\\" in text:
        raise ValueError("an escape: names would have line ends")
    document = parse_json(text, MAX_OUTPUT)
    owed = document.get("owed", {})
    status = _STATUS.validate_python(
        {**document, "owed": {"cut": owed.get("cut", ()), "restart": owed.get("anew", ())}}
    )
    if not all(0 <= moment <= _MAX_TIME for moment in status.seen.values()):
        raise ValueError("not a time")
    return status


@dataclass(frozen=True, slots=True)
class ExpectedTunnel:
    """A tunnel of the plan; `routes` holds the blocks that BGP must announce, none for fixed routes."""

    name: str
    routes: tuple[IPv4Network, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedGateway:
    """The expected state of a gateway; `number` is that of the newest revocation list, None without an authority.

    `remote_blocks` holds routes that at least one of the tunnels must announce.
    """

    tunnels: tuple[ExpectedTunnel, ...] = ()
    remote_blocks: tuple[IPv4Network, ...] = ()
    number: int | None = None


def expected_gateway(plan: FleetPlan, node: NodePlan, number: int | None) -> ExpectedGateway:
    """Return the expected state of a gateway of the plan; `number` is that of the newest revocation list."""
    place = node.name.partition(".")[2]
    if NodeRole.TUNNELS in node.roles:
        to_regions = (
            ExpectedTunnel(tunnel.name, _region_routes(plan, tunnel)) for tunnel in plan.tunnels if tunnel.site == place
        )
        return ExpectedGateway((*to_regions, *_direct_tunnels(plan, place)), _site_routes(plan, place), number)
    peers = region_peers(plan, place) if NodeRole.PEERED in node.roles else ()
    return ExpectedGateway(tuple(ExpectedTunnel(peer.region) for peer in peers), number=number)


def _region_routes(plan: FleetPlan, tunnel: TunnelPlan) -> tuple[IPv4Network, ...]:
    """Return the blocks that a site accepts from AWS: all that the transit gateway routes to it, or the VPC's.

    A virtual private gateway announces its VPC, and not the targets of the VPC's route tables, such as laptop pools.
    Source: AWS Site-to-Site VPN user guide, "Route priority and prefixes", 2026-11.
    """
    if not has_transit(plan):
        return (plan.region(tunnel.region).block,)
    return tuple(target.block for target in networks_accepted(plan, tunnel.region, tunnel.site))


def _direct_tunnels(plan: FleetPlan, site: str) -> Iterator[ExpectedTunnel]:
    """Yield the tunnels to connected sites; each announces its own blocks."""
    for direct in plan.site_tunnels_of(site):
        blocks = tuple(target.block for target in networks_of_place(plan, direct.other(site)))
        yield ExpectedTunnel(direct.name(site), blocks)


def _site_routes(plan: FleetPlan, site: str) -> tuple[IPv4Network, ...]:
    """Return the blocks of other sites: each transit gateway has fixed routes to them."""
    sites = {other.name for other in plan.sites} if has_transit(plan) else set()
    return tuple(target.block for target in remote_networks(plan, site) if target.place in sites)


# BGP sends a packet every 10 s, gateways of regions every 15 s: after 90 s without any, a tunnel carries nothing.
SILENT_S = 90
_PUSH_TUNNELS = "run `bedplate vpn tunnels`"
# A certificate is valid from five minutes before it is signed.
SKEW_S = 240
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class GatewayFinding:
    """A finding about a gateway; `is_failing` means that something does not work, or will not within days."""

    gateway: str
    message: str
    is_failing: bool


def gateway_findings(node: NodePlan, expected: ExpectedGateway, status: Status, now: int) -> tuple[GatewayFinding, ...]:
    """Return the findings about a gateway; `now` is Unix time by the clock of this machine."""
    findings = _gateway_findings(node, expected, status, now)
    return tuple(GatewayFinding(node.name, finding.message, finding.level is Level.ERROR) for finding in findings)


def last_seen(answers: Iterable[Status]) -> Mapping[str, datetime]:
    """Return when each laptop was last connected to any of these gateways."""
    latest: dict[str, int] = {}
    for status in answers:
        latest |= {name: max(moment, latest.get(name, 0)) for name, moment in status.seen.items()}
    return {name: datetime.fromtimestamp(moment, UTC) for name, moment in latest.items()}


def _finding(message: str, *, failing: bool = True) -> Finding:
    return Finding(Level.ERROR if failing else Level.WARNING, message)


def _gateway_findings(node: NodePlan, expected: ExpectedGateway, status: Status, now: int) -> Iterator[Finding]:
    if abs(status.time - now) > SKEW_S:
        yield _finding(f"the clock is off by {abs(status.time - now):,} s")
    if NodeRole.LAPTOPS in node.roles:
        yield from _laptop_findings(status, expected.number)
    if node.roles & {NodeRole.TUNNELS, NodeRole.PEERED}:
        yield from tunnel_findings(expected, status)
        yield from _tunnel_certificate_findings(status)


def _laptop_findings(status: Status, newest: int | None) -> Iterator[Finding]:
    if not status.laptops:
        yield _finding("no OpenVPN daemon is installed: apply the role openvpn, then run `bedplate vpn sync`")
        return
    for transport, sessions in status.laptops.items():
        if sessions is None:
            yield _finding(f"OpenVPN over {transport} is down")
    yield from _end_findings("the certificate", status.certificate, status.time, EXPIRY_WARNING[Use.SERVER])
    yield from _end_findings("the revocation list", status.crl, status.time)
    if newest is not None and status.crl is not None:
        yield from _crl_number_findings(status.number, newest)
    if status.owed.cut:
        yield _finding(f"sessions of {', '.join(sorted(status.owed.cut))} must still be ended: {_SYNC}")
    yield from _shared_profile_findings(status)
    for transport in sorted(status.owed.restart):
        yield _finding(f"OpenVPN over {transport} still uses the former certificate: {_SYNC}")


# With two devices, OpenVPN ends the session of one when the other connects, every few seconds.
_MANY_STARTS = 4


def _shared_profile_findings(status: Status) -> Iterator[Finding]:
    """Yield a finding for each laptop whose profile seems to be on two devices, at one daemon or at two."""
    restarts = {name: [source for _, source in starts] for name, starts in status.starts.items()}
    sources = {name: {*every} for name, every in restarts.items() if len(every) >= _MANY_STARTS}
    for session in (session for sessions in status.laptops.values() for session in sessions or ()):
        sources.setdefault(session.name, set()).add(session.source)
    for name, found in sorted(sources.items()):
        is_restarting = len(restarts.get(name, ())) >= _MANY_STARTS
        if is_restarting or len(found) > 1:
            what = "a new session each minute" if is_restarting else "two sessions"
            cause = "a second device" if len(found) > 1 else "a bad line, or a second device"
            fix = f"`bedplate person invite {user_of(name)} --laptop NAME` makes one for each device"
            message = f"{name} has {what}, from {' and '.join(sorted(found))}: {cause} with this profile: {fix}"
            yield _finding(message, failing=False)


def _crl_number_findings(number: int | None, newest: int) -> Iterator[Finding]:
    if number is None:
        yield _finding("the number of the revocation list is not reported: apply the role vpnagent to the gateway")
    elif number < newest:
        yield _finding(f"the revocation list is number {number}, the newest is {newest}: {_SYNC}")
    elif number > newest:
        message = f"the revocation list is number {number}, the newest in fleet.pki is {newest}: get the newest folder"
        yield _finding(f"{message} (git pull)", failing=False)


def _tunnel_certificate_findings(status: Status) -> Iterator[Finding]:
    """Yield findings about end dates of the tunnels' certificates; tunnels with shared keys have none."""
    ends = {
        "the certificate for tunnels": status.peer_certificate,
        "the revocation list for tunnels": status.peer_crl,
    }
    if any(end is not None for end in ends.values()):
        for what, end in ends.items():
            yield from _end_findings(what, end, status.time)


def _end_findings(what: str, end: int | None, now: int, warning: timedelta = WARNING) -> Iterator[Finding]:
    left = None if end is None else end - now
    if left is None:
        yield _finding(f"{what} is missing: {_SYNC}")
    elif left <= 0:
        yield _finding(f"{what} has expired, all connections are rejected: {_SYNC}")
    elif left <= warning.total_seconds():
        yield _finding(f"{what} expires in {left // _DAY_S} days: {_SYNC}", failing=left <= FAILURE.total_seconds())


def tunnel_findings(expected: ExpectedGateway, status: Status) -> Iterator[Finding]:
    """Yield findings about the tunnels of a gateway and their BGP sessions."""
    names, reported = [tunnel.name for tunnel in expected.tunnels], {tunnel.name for tunnel in status.tunnels or ()}
    missing = [name for name in names if name not in reported]
    if missing:
        yield _finding(f"tunnel{'s' * (len(missing) > 1)} {', '.join(missing)} not configured: {_PUSH_TUNNELS}")
    for tunnel in status.tunnels or ():
        if tunnel.name in names:
            yield from _tunnel_findings(tunnel, status.charon)
        else:
            yield _finding(f"tunnel {tunnel.name} is not in the plan: {_PUSH_TUNNELS} to remove it", failing=False)
    yield from _bgp_findings(expected, status)


def _tunnel_findings(tunnel: Tunnel, charon: bool | None) -> Iterator[Finding]:  # noqa: FBT001  None without a report
    if charon is False:
        yield _finding(f"state of tunnel {tunnel.name} unknown: charon does not answer")
    elif tunnel.age is None:
        yield _finding(f"tunnel {tunnel.name} is down")
    elif tunnel.idle is None:
        message = f"tunnel {tunnel.name} is up, but has not received a packet yet"
        yield _finding(message, failing=tunnel.age > SILENT_S)
    elif tunnel.idle > SILENT_S:
        message = f"tunnel {tunnel.name} is up, but has not received a packet for {tunnel.idle} s"
        yield _finding(message, failing=tunnel.age > SILENT_S)
    else:
        unsent = tunnel.age if tunnel.unsent is None and not tunnel.sent else tunnel.unsent
        if unsent is not None and unsent > SILENT_S:
            message = f"tunnel {tunnel.name} receives, but has not sent a packet for {unsent} s"
            yield _finding(f"{message}: restart {CHARON_UNIT} on this gateway")


def _bgp_findings(expected: ExpectedGateway, status: Status) -> Iterator[Finding]:
    """Yield what BGP does not announce through tunnels that are up."""
    ages = {tunnel.name: tunnel.age for tunnel in status.tunnels or () if tunnel.age is not None}
    dynamic = [tunnel for tunnel in expected.tunnels if tunnel.routes and tunnel.name in ages]
    if dynamic and status.bgp is None:
        yield _finding("the state of BGP is not reported: apply the role vpnagent to the gateway")
        return
    neighbours = {neighbour.tunnel: neighbour for neighbour in status.bgp or ()}
    for tunnel in dynamic:
        yield from _neighbour_findings(tunnel, neighbours.get(tunnel.name), ages[tunnel.name])
    established = [neighbour for neighbour in neighbours.values() if neighbour.age is not None]
    missing = _missing_routes(expected.remote_blocks, established) if established else ""
    if missing:
        failing = any((neighbour.age or 0) > SILENT_S for neighbour in established)
        yield _finding(f"BGP announces no route to {missing} through any tunnel", failing=failing)


def _neighbour_findings(tunnel: ExpectedTunnel, neighbour: Neighbour | None, age: int) -> Iterator[Finding]:
    if neighbour is None or neighbour.age is None:
        yield _finding(f"BGP is down in tunnel {tunnel.name}", failing=age > SILENT_S)
        return
    missing = _missing_routes(tunnel.routes, [neighbour])
    if missing:
        message = f"BGP announces no route to {missing} through tunnel {tunnel.name}"
        yield _finding(message, failing=neighbour.age > SILENT_S)


def _missing_routes(blocks: Iterable[IPv4Network], neighbours: Iterable[Neighbour]) -> str:
    announced = {block for neighbour in neighbours for block in neighbour.blocks}
    return ", ".join(str(block) for block in blocks if str(block) not in announced)
