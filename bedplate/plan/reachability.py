"""The endpoints of a fleet, and which of them the network must connect.

It follows from the plan alone. The declared stacks are tested against it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from bedplate.errors import InputError, nearest, nearest_fix
from bedplate.plan.fleet import FleetPlan, cached_on_plan
from bedplate.plan.hub import HUB_HOST
from bedplate.plan.links import cluster_blocks, highest_number, is_connected
from bedplate.plan.space import region_path
from bedplate.spec.network import Egress, Interconnect


class EndpointKind(StrEnum):
    """The type of an endpoint."""

    NODES = "nodes"
    EDGE = "edge"
    LAN = "lan"
    CONTROL = "control plane"
    HUB = "hub"
    LAPTOPS = "laptops"
    PODS = "pods"
    INTERNET = "internet"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A source or target of packets: a block, and one address in it; `place` is its region or site."""

    name: str
    kind: EndpointKind
    place: str
    block: IPv4Network
    address: IPv4Address


INTERNET = Endpoint(
    # TEST-NET-3 (RFC 5737): assigned to no network.
    "internet",
    EndpointKind.INTERNET,
    "internet",
    IPv4Network("203.0.113.0/24"),
    IPv4Address("203.0.113.9"),
)


@dataclass(frozen=True, slots=True)
class Flow:
    """The protocol and the port of a connection; port 0 for ICMP."""

    protocol: str = "tcp"
    port: int = 22


SSH = Flow()


@cached_on_plan
def endpoints(plan: FleetPlan) -> tuple[Endpoint, ...]:
    """Return the endpoints of a fleet, smaller blocks before those that contain them."""
    return (*_members(plan), *_subnets(plan), *_lans(plan), *_laptops(plan))


@cached_on_plan
def pod_endpoints(plan: FleetPlan) -> tuple[Endpoint, ...]:
    """Return the endpoints behind the pods router. They are targets only: pods leave with the address of their node."""
    return tuple(
        Endpoint(name, EndpointKind.PODS, plan.home.name, block, _sample_address(block))
        for name, block in cluster_blocks(plan).items()
    )


def is_routed(plan: FleetPlan, source: Endpoint, target: Endpoint) -> bool:
    """Return whether the network must route packets from one endpoint to another."""
    if EndpointKind.INTERNET in (source.kind, target.kind):
        return (
            source.kind in (EndpointKind.NODES, EndpointKind.CONTROL, EndpointKind.HUB)
            and plan.egress is not Egress.NONE
        )
    if source.place == target.place:
        return True
    match plan.interconnect:
        case Interconnect.TRANSIT:
            return True
        case Interconnect.PEERING:
            return _has_own_block(plan, source) and _has_own_block(plan, target)
        case Interconnect.NONE:
            return _is_routed_by_gateways(plan, source, target)


def _members(plan: FleetPlan) -> Iterator[Endpoint]:
    for member in plan.control_plane.members if plan.control_plane else ():
        yield Endpoint(member.name, EndpointKind.CONTROL, plan.home.name, IPv4Network(member.address), member.address)
    if (hub := plan.hub) and hub.region:
        yield Endpoint(hub.node, EndpointKind.HUB, hub.region, IPv4Network(hub.address), hub.address)


def _subnets(plan: FleetPlan) -> Iterator[Endpoint]:
    for region in plan.regions:
        for zone in region.zones:
            yield Endpoint(
                f"{zone.name}/nodes", EndpointKind.NODES, region.name, zone.nodes, _sample_address(zone.nodes)
            )
            yield Endpoint(f"{zone.name}/edge", EndpointKind.EDGE, region.name, zone.edge, _sample_address(zone.edge))


def _lans(plan: FleetPlan) -> Iterator[Endpoint]:
    for site in plan.sites:
        for name, block in site.networks.items():
            yield Endpoint(name, EndpointKind.LAN, site.name, block, _sample_address(block))


def _laptops(plan: FleetPlan) -> Iterator[Endpoint]:
    for pool in plan.laptops:
        yield Endpoint(
            f"laptops.{pool.place}", EndpointKind.LAPTOPS, pool.place, pool.block, _sample_address(pool.block)
        )


def _has_own_block(plan: FleetPlan, endpoint: Endpoint) -> bool:
    """Return whether an endpoint is in the block of a VPC or a site, not in the laptop pool of a region."""
    return endpoint.kind is not EndpointKind.LAPTOPS or endpoint.place in plan.sites_by_name


def _is_routed_by_gateways(plan: FleetPlan, source: Endpoint, target: Endpoint) -> bool:
    """Return whether endpoints of two places reach each other where AWS connects no regions.

    Connected regions reach each other through their gateways, laptop pools included. A site's tunnels to AWS end at a
    virtual private gateway, which routes to its region's block only. Sites reach each other through a region's gateway.
    """
    match sorted({source.place, target.place} & plan.regions_by_name.keys()):
        case [region, other]:
            return is_connected(plan, region, other)
        case _:
            return _has_own_block(plan, source) and _has_own_block(plan, target)


def _sample_address(block: IPv4Network) -> IPv4Address:
    """Return an address of a block, clear of the first ones, which AWS reserves."""
    return block[min(10, block.num_addresses - 2)]


_PROTOCOLS = ("tcp", "udp", "icmp")
_PORTS = range(1, 65536)


def find_endpoint(plan: FleetPlan, name: str) -> Endpoint:
    """Return the endpoint of a name or an address; InputError, with the nearest name, for an unknown one."""
    address = _parse_address(name)
    if address is not None:
        return _at(plan, address, name)
    names, short = _by_name(plan), name.removesuffix(f".{plan.domain}")
    if short in names:
        return names[short]
    host, _, region = short.partition(".")
    group, _, number = host.rpartition("-")
    short_names = sorted(endpoint_name for endpoint_name in names if "/" not in endpoint_name)
    near = nearest(name, names if "/" in name else short_names)
    if pool := next((pool for pool in plan.pools if (pool.group, pool.region) == (group, region)), None):
        highest = highest_number(plan, pool)
        valid = str(min(max(int(number), 1), highest)) if number.isdecimal() else "1"
        if number == valid:
            # Only AWS knows the zone of a machine; those of a pool have the same routes.
            return replace(names[pool.zones[0]], name=name)
        near = f"{group}-{valid}.{region}"
    fix = f"write {near}" if near else f"write one of {', '.join(short_names)}, or an IPv4 address"
    raise InputError(f"no endpoint named {name} in the fleet {plan.name}", fix=fix)


def internet_endpoint(name: str) -> Endpoint | None:
    """Return an internet endpoint for an address, without a fleet; None if the name is not an address."""
    address = _parse_address(name)
    return None if address is None else replace(INTERNET, name=name, address=address, block=IPv4Network(address))


def parse_flow(protocol: str, port: int | None = None) -> Flow:
    """Return a flow, with port 22 as TCP's default; InputError for an invalid protocol or port."""
    if protocol not in _PROTOCOLS:
        raise InputError(f"unsupported protocol {protocol}", fix=nearest_fix(protocol, _PROTOCOLS))
    if protocol == "icmp":
        if port is not None:
            raise InputError("icmp has no ports", fix="omit --port")
        return Flow("icmp", 0)
    if port is None and protocol == "udp":
        raise InputError("udp requires a port", fix="add --port, such as --port 53")
    if port is not None and port not in _PORTS:
        raise InputError(f"{port} is not a valid {protocol} port", fix="use a port from 1 to 65535")
    return Flow(protocol, SSH.port if port is None else port)


def _by_name(plan: FleetPlan) -> dict[str, Endpoint]:
    """Return every endpoint by each of its names and its path; a zone or a region means its nodes."""
    by_name = {endpoint.name: endpoint for endpoint in endpoints(plan)}
    names = {INTERNET.name: INTERNET, **by_name, **{endpoint.name: endpoint for endpoint in pod_endpoints(plan)}}
    for endpoint in by_name.values():
        if endpoint.kind is EndpointKind.NODES:
            names.setdefault(endpoint.name.removesuffix("/nodes"), endpoint)
            names.setdefault(endpoint.place, endpoint)
            names.setdefault(region_path(endpoint.place), endpoint)
    by_block = {endpoint.block: endpoint for endpoint in by_name.values()}
    names |= {path: by_block[block] for path, block in plan.blocks.items() if block in by_block}
    fixed = {HUB_HOST: plan.hub.address} if plan.hub else {}
    return names | {name: _at(plan, address, name) for name, address in {**fixed, **plan.addresses}.items()}


def _parse_address(name: str) -> IPv4Address | None:
    try:
        return IPv4Address(name)
    except AddressValueError:
        return None


def _at(plan: FleetPlan, address: IPv4Address, name: str) -> Endpoint:
    """Return the endpoint of an address: in the block that contains it, else on the internet."""
    for endpoint in (*endpoints(plan), *pod_endpoints(plan)):
        if address in endpoint.block:
            return replace(endpoint, name=name, address=address)
    return replace(INTERNET, name=name, address=address, block=IPv4Network(address))
