"""What an operator means by the name of a place or of a flow."""

from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.intent import INTERNET, SSH, Flow, Kind, Spot, spots
from bedplate.plan.paths import region_path

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
