"""What an operator means by the name of a place or of a flow."""

from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.intent import INTERNET, Flow, Kind, Spot, spots

_PORTS = range(1, 65536)


def spot_of(plan: FleetPlan, name: str) -> Spot:
    """Return the spot that a name or an address means; raises InputError, with the nearest name, for none."""
    try:
        return _at(plan, IPv4Address(name), name)
    except AddressValueError:
        pass
    named = _named(plan)
    if name not in named:
        near = nearest(name, named)
        fix = f"write {near}" if near else f"one of {', '.join(sorted(named))}, or an IPv4 address"
        raise InputError(f"{name} is no place of the fleet {plan.name}", fix=fix)
    return named[name]


def flow_of(text: str) -> Flow:
    """Return what tcp/22 or icmp means; raises InputError for anything else."""
    protocol, _, port = text.partition("/")
    if text == "icmp":
        return Flow("icmp", 0)
    if protocol in ("tcp", "udp") and port.isascii() and port.isdigit() and int(port[:6]) in _PORTS:
        return Flow(protocol, int(port))
    raise InputError(f"{text} is no flow", fix="write tcp/PORT, udp/PORT or icmp; ports are 1 to 65535")


def _named(plan: FleetPlan) -> dict[str, Spot]:
    """Return every spot by each of its names: a zone or a region alone means nodes there."""
    every = {spot.name: spot for spot in spots(plan)}
    names = {INTERNET.name: INTERNET, **every}
    for spot in every.values():
        if spot.kind is Kind.NODES:
            names.setdefault(spot.name.removesuffix("/nodes"), spot)
            names.setdefault(spot.place, spot)
    return names | {name: _at(plan, address, name) for name, address in plan.addresses.items()}


def _at(plan: FleetPlan, address: IPv4Address, name: str) -> Spot:
    """Return the spot of an address: in the block that holds it, or somewhere on the internet."""
    for spot in spots(plan):
        if address in spot.block:
            return replace(spot, name=name, address=address)
    return replace(INTERNET, name=name, address=address, block=IPv4Network(address))
