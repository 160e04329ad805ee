"""Who is to reach whom in a fleet, from the plan alone: what the network carries, and what the doors let in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.firewall import WORKER_PORTS, has_workers
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import API_PORT, is_led, joined_regions
from bedplate.plan.space import region_path
from bedplate.spec.network import Egress, Interconnect


class Kind(StrEnum):
    """What stands at a spot."""

    NODES = "nodes"
    EDGE = "edge"
    LAN = "lan"
    CONTROL = "control plane"
    LAPTOPS = "laptops"
    INTERNET = "internet"


@dataclass(frozen=True, slots=True)
class Spot:
    """A block from which packets come and to which they go; `place` is its region or site."""

    name: str
    kind: Kind
    place: str
    block: IPv4Network
    address: IPv4Address


INTERNET = Spot(
    # A stranger of TEST-NET-3 (RFC 5737): no part of anybody's network.
    "internet",
    Kind.INTERNET,
    "internet",
    IPv4Network("203.0.113.0/24"),
    IPv4Address("203.0.113.9"),
)


@dataclass(frozen=True, slots=True)
class Flow:
    """What is asked for: a protocol, and a port where it has any."""

    protocol: str = "tcp"
    port: int = 22


SSH = Flow()
API = Flow("tcp", API_PORT)


def spots(plan: FleetPlan) -> tuple[Spot, ...]:
    """Return every block of a fleet that packets come from, each with an address in it; what lies in another first."""
    return (*_members(plan), *_subnets(plan), *_lans(plan), *_laptops(plan))


def carries(plan: FleetPlan, source: Spot, target: Spot) -> bool:
    """Tell whether the network is to lead packets from one spot to another."""
    if Kind.INTERNET in (source.kind, target.kind):
        return source.kind in (Kind.NODES, Kind.CONTROL) and plan.egress is not Egress.NONE
    if source.place == target.place:
        return True
    match plan.interconnect:
        case Interconnect.TRANSIT:
            return True
        case Interconnect.PEERING:
            return _is_own(plan, source) and _is_own(plan, target)
        case Interconnect.NONE:
            return _by_gateways(plan, source, target)


def reaches(plan: FleetPlan, source: Spot, target: Spot, flow: Flow = SSH) -> bool:
    """Tell whether a connection from one spot to another is to come about.

    Nothing known stands in an edge subnet but gateways, and nobody is to open a connection to a laptop of a region's
    pool, but another laptop where the file asks for it. Where its security group lets the packet in, the gateway
    itself has to refuse it. So it is on OpenVPN's own two ports, which are open to all, and where `refused_by_gateway`
    says so.
    What a site lets in is the site's matter.
    """
    if not carries(plan, source, target) or source.kind is Kind.EDGE:
        return False
    if target.kind is Kind.NODES:
        return source.kind in (Kind.NODES, Kind.CONTROL) or (source.kind in _PEOPLE and flow == SSH)
    if target.kind is Kind.CONTROL:
        doors = {Kind.NODES: (API,), **dict.fromkeys(_PEOPLE, (API, SSH))}
        is_worker = source.kind in (Kind.NODES, Kind.LAN) and has_workers(plan, source.place)
        worker = [Flow(protocol, port) for _, protocol, port in WORKER_PORTS] if is_worker else []
        return source.kind is Kind.CONTROL or flow in (*doors.get(source.kind, ()), *worker)
    if target.kind is Kind.LAPTOPS:
        return _meet(plan, source, target) or target.place not in {region.name for region in plan.regions}
    return target.kind in (Kind.LAN, Kind.INTERNET)


def refused_by_gateway(plan: FleetPlan, source: Spot, target: Spot) -> bool:
    """Tell whether AWS leads a packet as far as a gateway that has to refuse it by its own packet filter.

    A gateway that joins regions takes all that its region's nodes send by it, and a security group knows no target:
    whatever is for a laptop gets as far, and so does what comes out of a tunnel.
    """
    is_joined = target.kind is Kind.LAPTOPS and target.place in joined_regions(plan)
    if _meet(plan, source, target):
        return False
    return is_joined and source.kind is not Kind.EDGE and carries(plan, source, target)


def _meet(plan: FleetPlan, source: Spot, target: Spot) -> bool:
    """Tell whether both are laptops, and the file lets them reach each other."""
    are_laptops = source.kind is Kind.LAPTOPS and target.kind is Kind.LAPTOPS
    return are_laptops and any(pool.between for pool in plan.laptops)


_PEOPLE = (Kind.LAN, Kind.LAPTOPS)


def _members(plan: FleetPlan) -> Iterator[Spot]:
    for member in plan.control_plane.members if plan.control_plane else ():
        yield Spot(member.name, Kind.CONTROL, plan.home.name, IPv4Network(member.address), member.address)


def _subnets(plan: FleetPlan) -> Iterator[Spot]:
    for region in plan.regions:
        for zone in region.zones:
            yield Spot(f"{zone.name}/nodes", Kind.NODES, region.name, zone.nodes, _somebody(zone.nodes))
            yield Spot(f"{zone.name}/edge", Kind.EDGE, region.name, zone.edge, _somebody(zone.edge))


def _lans(plan: FleetPlan) -> Iterator[Spot]:
    for site in plan.sites:
        yield Spot(site.name, Kind.LAN, site.name, site.lan, _somebody(site.lan))


def _laptops(plan: FleetPlan) -> Iterator[Spot]:
    for pool in plan.laptops:
        yield Spot(f"laptops.{pool.place}", Kind.LAPTOPS, pool.place, pool.block, _somebody(pool.block))


def _is_own(plan: FleetPlan, spot: Spot) -> bool:
    """Tell whether a spot's addresses are a VPC's or a site's own, not a pool behind a gateway of a region."""
    return spot.kind is not Kind.LAPTOPS or spot.place in {site.name for site in plan.sites}


def _by_gateways(plan: FleetPlan, source: Spot, target: Spot) -> bool:
    """Tell whether spots of two places reach each other where AWS joins no regions.

    Regions do by their own gateways, pools and all. A site's tunnels end at a virtual private gateway, which leads to
    its region's own block.
    """
    match sorted(_regions_among(plan, source, target)):
        case [one, other]:
            return is_led(plan, one, other)
        case _:
            return _is_own(plan, source) and _is_own(plan, target)


def _regions_among(plan: FleetPlan, *two: Spot) -> set[str]:
    """Return the regions of two spots; without any they are sites, which a region's gateway leads to each other."""
    return {spot.place for spot in two} & {region.name for region in plan.regions}


def _somebody(block: IPv4Network) -> IPv4Address:
    """Return an address of a block, clear of those that AWS keeps at its start."""
    return block[min(10, block.num_addresses - 2)]


_PROTOCOLS = ("tcp", "udp", "icmp")
_PORTS = range(1, 65536)


def spot_of(plan: FleetPlan, name: str) -> Spot:
    """Return the spot that a name or an address means; raises InputError, with the nearest name, for none."""
    address = _address(name)
    if address is not None:
        return _at(plan, address, name)
    named = _named(plan)
    if name not in named:
        near = nearest(name, named)
        short = sorted(one for one in named if "/" not in one)
        fix = f"write {near}" if near else f"one of {', '.join(short)}, or an IPv4 address"
        raise InputError(f"{name} is no place of the fleet {plan.name}", fix=fix)
    return named[name]


def spot_at(name: str) -> Spot | None:
    """Return the spot of an address by itself, of no fleet; none for what is no address."""
    address = _address(name)
    return None if address is None else replace(INTERNET, name=name, address=address, block=IPv4Network(address))


def flow_of(protocol: str, port: int | None = None) -> Flow:
    """Return what is asked for, port 22 of TCP where no port is said; raises InputError for no protocol or port."""
    if protocol not in _PROTOCOLS:
        raise InputError(f"{protocol} is no protocol that is walked", fix=f"one of {', '.join(_PROTOCOLS)}")
    if protocol == "icmp":
        if port is not None:
            raise InputError("icmp has no ports", fix="leave --port out")
        return Flow("icmp", 0)
    if port is None and protocol == "udp":
        raise InputError("which port of udp is not said", fix="add --port, such as --port 53")
    if port is not None and port not in _PORTS:
        raise InputError(f"{port} is no port of {protocol}", fix="ports are 1 to 65535")
    return Flow(protocol, SSH.port if port is None else port)


def _named(plan: FleetPlan) -> dict[str, Spot]:
    """Return every spot by each of its names and its path: a zone or a region alone means nodes there."""
    every = {spot.name: spot for spot in spots(plan)}
    names = {INTERNET.name: INTERNET, **every}
    for spot in every.values():
        if spot.kind is Kind.NODES:
            names.setdefault(spot.name.removesuffix("/nodes"), spot)
            names.setdefault(spot.place, spot)
            names.setdefault(region_path(spot.place), spot)
    names |= {path: spot for path, block in plan.blocks.items() for spot in every.values() if spot.block == block}
    return names | {name: _at(plan, address, name) for name, address in plan.addresses.items()}


def _address(name: str) -> IPv4Address | None:
    try:
        return IPv4Address(name)
    except AddressValueError:
        return None


def _at(plan: FleetPlan, address: IPv4Address, name: str) -> Spot:
    """Return the spot of an address: in the block that holds it, or somewhere on the internet."""
    for spot in spots(plan):
        if address in spot.block:
            return replace(spot, name=name, address=address)
    return replace(INTERNET, name=name, address=address, block=IPv4Network(address))
