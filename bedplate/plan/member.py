"""The control plane's machines: each with a fixed address that the lock remembers, spread over the home's zones.

Every nodes subnet keeps its second block of sixteen addresses for machines whose address is fixed; AWS hands out
none of them by itself.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.fleet import Member, RegionPlan, ZonePlan

FIXED_PREFIX = 28


def fixed_block(nodes: IPv4Network) -> IPv4Network:
    """Return the part of a nodes subnet that is for fixed addresses: clear of the first four, which AWS keeps."""
    size = 1 << (nodes.max_prefixlen - FIXED_PREFIX)
    return IPv4Network((int(nodes.network_address) + size, FIXED_PREFIX))


def members(
    home: RegionPlan, count: int, recorded: Mapping[str, IPv4Address], offering: Container[str]
) -> tuple[Member, ...]:
    """Return the control plane's machines, those first that the lock knows in a zone of today's file.

    A new one stands, of the zones `offering` its type, in the one that has the fewest, the one allotted first among
    equals, at its lowest address that nobody ever had; in any zone where none of them offers it.
    """
    zones = sorted(home.zones, key=lambda zone: zone.nodes)
    fit = [zone for zone in zones if zone.name in offering] or zones
    names = [member_name(number, home.name) for number in range(1, count + 1)]
    found = {name: Member(name, zone.name, recorded[name]) for name, zone in _kept(names, zones, recorded)}
    taken = {*recorded.values()}
    for name in (name for name in names if name not in found):
        found[name] = _placed(name, fit, tuple(found.values()), taken)
        taken.add(found[name].address)
    return tuple(found[name] for name in names)


def member_name(number: int, region: str) -> str:
    """Return the name by which a machine of the control plane is known, without the domain."""
    return f"control-{number}.{region}"


def _kept(
    names: Iterable[str], zones: list[ZonePlan], recorded: Mapping[str, IPv4Address]
) -> Iterator[tuple[str, ZonePlan]]:
    for name in names:
        yield from ((name, zone) for zone in zones if name in recorded and recorded[name] in zone.nodes)


def _placed(name: str, zones: list[ZonePlan], others: tuple[Member, ...], taken: set[IPv4Address]) -> Member:
    def crowd(zone: ZonePlan) -> int:
        return sum(other.zone == zone.name for other in others)

    zone = min(zones, key=crowd)
    return Member(name, zone.name, next(one for one in fixed_block(zone.nodes) if one not in taken))
