"""Ladders: declared regions and zones, useful rungs, offered types, and reservations."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.checks.diagnostics import Context, one_of, repeated
from bedplate.checks.groups import full_gpus, hardware_kind
from bedplate.checks.lifetimes import IN_THE_PAST, is_past
from bedplate.errors import nearest
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.groups import Fabric, Group, Rung

KeyedRungs = tuple[tuple[str, Rung], ...]


def check_ladders(context: Context) -> Iterator[Fault]:
    """Yield faults of the region and zone of each rung, and of rungs that are never used."""
    for name, group in context.fleet.groups.items():
        rungs = keyed_rungs(name, group)
        for key, rung in rungs:
            yield from check_declared_region(context, f"{key}.region", rung.region)
            yield from _check_zone(context, key, rung)
        yield from _check_duplicates(rungs)
        yield from _check_unreachable(group, rungs)


def keyed_rungs(name: str, group: Group) -> KeyedRungs:
    """Return the rungs of a group, each with its key."""
    return tuple((f"groups.{name}.ladder.{index}", rung) for index, rung in enumerate(group.ladder))


def check_declared_region(context: Context, key: str, region: str) -> Iterator[Fault]:
    """Yield a fault if the file does not declare a region; a misspelt declaration is reported by itself."""
    regions = context.declared.names("regions")
    if regions and region not in regions and not _is_misspelt_declaration(context, region):
        facts = context.catalog.regions.get(region)
        near = None if facts else nearest(region, regions)
        zones = f"{{zones: [{', '.join(sorted(facts.zones)[:2])}]}}" if facts else ""
        declaration = f"declare `{region}: {zones}` under regions, or " if facts else ""
        fix = f"write {near}" if near else declaration + one_of(regions & context.catalog.regions.keys() or regions)
        yield fault(UNDECLARED_REGION, key, f"the file has no region {region}", fix)


def _is_misspelt_declaration(context: Context, region: str) -> bool:
    """Return whether a declared region that AWS does not have is most likely this one."""
    catalog_regions = context.catalog.regions
    near = nearest(region, context.declared.names("regions") - catalog_regions.keys())
    return near is not None and nearest(near, catalog_regions) == region


def _check_zone(context: Context, key: str, rung: Rung) -> Iterator[Fault]:
    zones = context.declared.names("regions", rung.region, "zones")
    if rung.zone is None or not zones or rung.zone in zones:
        return
    if not rung.zone.startswith(rung.region):
        yield fault(ZONE_OF_OTHER_REGION, f"{key}.zone", f"{rung.zone} is not a zone of {rung.region}", one_of(zones))
    else:
        message = f"regions.{rung.region} does not list {rung.zone}"
        yield fault(UNDECLARED_ZONE, f"{key}.zone", message, f"list it there, or {one_of(zones)}")


def _check_duplicates(rungs: KeyedRungs) -> Iterator[Fault]:
    """Yield a fault for each rung that would be the same Auto Scaling group as an earlier one."""
    by_key = dict(rungs)
    for key, _, first in repeated((key, rung.source) for key, rung in rungs):
        message = f"rungs {_number(first)} and {_number(key)} are the same"
        if by_key[key] != by_key[first]:
            message = f"rungs {_number(first)} and {_number(key)} have the same place and market"
        yield fault(DUPLICATE_RUNG, key, message)


def _check_unreachable(group: Group, rungs: KeyedRungs) -> Iterator[Fault]:
    """Yield faults of a zone after its whole region, and of rungs after a sufficient reservation."""
    for index, (key, rung) in enumerate(rungs):
        for other, earlier in rungs[:index]:
            if rung.zone and _covers(earlier, rung):
                yield fault(COVERED_RUNG, key, f"rung {_number(other)} already covers all zones of {rung.region}")
                break
            if earlier.reserved and not earlier.ends and earlier.reserved >= group.nodes.max > 0:
                message = f"rung {_number(other)} has {earlier.reserved} reserved machines; the group's maximum is "
                yield fault(UNREACHABLE_RUNG, key, f"{message}{group.nodes.max}")
                break


def _covers(earlier: Rung, later: Rung) -> bool:
    """Return whether a rung gets all capacity that a later one could get, in its region and at its price."""
    is_same_market = (earlier.region, earlier.market, earlier.zone) == (later.region, later.market, None)
    pays_more = earlier.max_price is not None and (later.max_price is None or later.max_price > earlier.max_price)
    return is_same_market and earlier.reservation is None and not pays_more


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1


def check_markets(context: Context) -> Iterator[Fault]:
    """Yield faults of keys that a rung's market needs or does not use."""
    for name, group in context.fleet.groups.items():
        for key, rung in keyed_rungs(name, group):
            yield from _check_unused_keys(key, rung)
            if rung.market.is_spot and group.fabric is Fabric.EFA:
                yield fault(SPOT_FABRIC, key, "a job on several machines fails when AWS interrupts one of them")
            if rung.market.is_reserved:
                yield from _check_reservation_keys(context, key, rung)
            if rung.market.is_block:
                yield from _check_end(context, key, rung)


def _check_unused_keys(key: str, rung: Rung) -> Iterator[Fault]:
    for name, value in (("reservation", rung.reservation), ("reserved", rung.reserved)):
        if not rung.market.is_reserved and value:
            fix = f"write market: reservation or capacity-block, or delete {name}"
            yield fault(UNUSED_RESERVATION, f"{key}.{name}", f"market {rung.market} does not use {name}", fix)
    if not rung.market.is_spot and rung.max_price is not None:
        yield fault(PRICE_WITHOUT_SPOT, f"{key}.max_price", f"market {rung.market} does not use max_price")
    if not rung.market.is_block and rung.ends:
        yield fault(END_WITHOUT_BLOCK, f"{key}.ends", f"market {rung.market} does not use ends")


def _check_reservation_keys(context: Context, key: str, rung: Rung) -> Iterator[Fault]:
    zones = sorted(context.declared.names("regions", rung.region, "zones"))
    forms = {"reservation": "reservation: cr-ID", "zone": f"zone: {' or '.join(zones) or 'ZONE'}"}
    values = {"reservation": rung.reservation, "zone": rung.zone}
    missing = [name for name, value in values.items() if value is None and not context.declared.has(key, name)]
    if missing:
        message = f"the market {rung.market} requires the {'keys' if missing[1:] else 'key'} {' and '.join(missing)}"
        yield fault(
            INCOMPLETE_RESERVATION, f"{key}.{missing[0]}", message, f"add {', '.join(forms[name] for name in missing)}"
        )


def _check_end(context: Context, key: str, rung: Rung) -> Iterator[Fault]:
    if rung.ends and is_past(rung.ends, context.today):
        message = f"the block ended on {rung.ends[:10]}; today is {context.today}"
        yield fault(IN_THE_PAST, f"{key}.ends", message, "delete the rung, or write the id and end of another block")
    elif rung.ends is None and not context.declared.has(key, "ends"):
        yield fault(BLOCK_WITHOUT_END, f"{key}.ends", "the end of the capacity block is missing")


_MOST_ALTERNATIVES = 2


def check_offers(context: Context) -> Iterator[Fault]:
    """Yield faults of rungs that offer none of the group's types, with alternatives."""
    for name, group in context.fleet.groups.items():
        type_facts = [
            context.catalog.types[type_name] for type_name in group.types if type_name in context.catalog.types
        ]
        if len(type_facts) == len(group.types):
            yield from _check_ladder_offers(context, f"groups.{name}", group, type_facts)


def _check_ladder_offers(context: Context, key: str, group: Group, type_facts: list[InstanceFacts]) -> Iterator[Fault]:
    for index, rung in enumerate(group.ladder):
        zones = _usable_zones(context, rung)
        offered = {zone for facts in type_facts for zone in context.catalog.offered(facts.name, rung.region)}
        if zones and offered.isdisjoint(zones):
            verb = "does" if len(zones) == 1 else "do"
            types = " or ".join(facts.name for facts in type_facts)
            message = f"{', '.join(sorted(zones))} {verb} not offer {types}"
            yield fault(
                TYPE_NOT_OFFERED,
                f"{key}.ladder.{index}",
                message,
                _offer_fix(context.catalog, group, type_facts, offered, zones),
            )


def _usable_zones(context: Context, rung: Rung) -> frozenset[str]:
    """Return the zones that a rung may use; empty if its region or zone is invalid."""
    region = context.fleet.regions.get(rung.region)
    if region is None or rung.region not in context.catalog.regions:
        return frozenset()
    catalog_zones = context.catalog.regions[rung.region].zones
    return frozenset(zone for zone in region.zones if rung.zone in (None, zone) and zone in catalog_zones)


def _offer_fix(
    catalog: Catalog, group: Group, type_facts: list[InstanceFacts], offered: set[str], zones: frozenset[str]
) -> str:
    fixes = []
    if offered:
        fixes.append(f"use {', '.join(sorted(offered))}")
    similar = _similar_types(catalog, type_facts[0], zones, fabric=group.fabric is not None)
    if near := tuple(islice(similar, _MOST_ALTERNATIVES)):
        fixes.append(f"write {' or '.join(near)}")
    regions = sorted({region for facts in type_facts for region in catalog.regions_offering(facts.name)})
    if regions and not offered:
        fixes.append(f"use one of {', '.join(regions)}")
    return ", or ".join(fixes)


def _similar_types(catalog: Catalog, facts: InstanceFacts, zones: frozenset[str], *, fabric: bool) -> Iterator[str]:
    """Yield the types of the same kind that one of the zones offers, the most similar first."""
    candidates = [
        other
        for other in catalog.types.values()
        if hardware_kind(other) == hardware_kind(facts)
        and full_gpus(other) == full_gpus(facts)
        and (other.efa or not fabric)
    ]
    regions = {zone[:-1] for zone in zones}
    for other in sorted(candidates, key=lambda other: _distance(facts, other)):
        if not zones.isdisjoint(zone for region in regions for zone in catalog.offered(other.name, region)):
            yield other.name


def _distance(facts: InstanceFacts, other: InstanceFacts) -> tuple[int, int, int, str]:
    mine, theirs = (item.gpu.memory_mib if item.gpu else 0 for item in (facts, other))
    return abs(theirs - mine), abs(other.vcpus - facts.vcpus), abs(other.memory_mib - facts.memory_mib), other.name


# Amazon EC2 user guide, Capacity Blocks for ML: instances of one block, and the types that AWS sells.
MOST_OF_BLOCK = 64
BLOCK_FAMILIES = frozenset(
    {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200", "p6e-gb300", "trn1", "trn2"}
)


def check_reservations(context: Context) -> Iterator[Fault]:
    """Yield faults of a reservation that appears with two zones, two types or two sizes."""
    zones: dict[str, str] = {}
    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    for name, group in context.fleet.groups.items():
        for key, rung in keyed_rungs(name, group):
            reservation = rung.reservation
            if reservation is None or not rung.market.is_reserved:
                continue
            if rung.zone and zones.setdefault(reservation, rung.zone) != rung.zone:
                message = f"{reservation} is in {zones[reservation]} elsewhere in this file"
                yield fault(RESERVATION_ZONES, f"{key}.zone", message)
            if rung.reserved and sizes.setdefault(reservation, rung.reserved) != rung.reserved:
                message = f"{reservation} has {sizes[reservation]} machines elsewhere in this file"
                fix = f"write {sizes[reservation]} in both, or correct the other"
                yield fault(RESERVATION_DIFFERS, f"{key}.reserved", message, fix)
            if types.setdefault(reservation, group.types[0]) != group.types[0]:
                message = f"{reservation} has type {types[reservation]} elsewhere in this file"
                yield fault(RESERVATION_DIFFERS, f"{key}.reservation", message)


def check_capacity(context: Context) -> Iterator[Fault]:
    """Yield faults of groups and rungs that their reservations or capacity blocks cannot serve."""
    for name, group in context.fleet.groups.items():
        rungs = keyed_rungs(name, group)
        for key, rung in rungs:
            if rung.market.is_reserved and len(group.types) > 1:
                message = f"one reservation cannot hold {len(group.types)} types: {', '.join(group.types)}"
                yield fault(RESERVATION_OF_TYPES, key, message)
            if rung.market.is_block:
                yield from _check_block(key, rung, group)
        yield from _check_maximum(f"groups.{name}", group, rungs)


def rung_capacity(rung: Rung) -> int | None:
    """Return the most machines that a rung can hold; None if it has no limit."""
    if not rung.market.is_reserved:
        return None
    return rung.reserved or (MOST_OF_BLOCK if rung.market.is_block else None)


def _check_block(key: str, rung: Rung, group: Group) -> Iterator[Fault]:
    if rung.reserved and rung.reserved > MOST_OF_BLOCK:
        message = f"a capacity block has at most {MOST_OF_BLOCK} machines, not {rung.reserved}"
        yield fault(BLOCK_SIZE, f"{key}.reserved", message)
    for type_name in group.types:
        if type_name.partition(".")[0] not in BLOCK_FAMILIES:
            yield fault(NO_BLOCKS_OF_TYPE, key, f"AWS does not sell capacity blocks of {type_name}")


def _check_maximum(key: str, group: Group, rungs: KeyedRungs) -> Iterator[Fault]:
    """Yield a fault if all rungs have a limit and cannot hold the maximum together."""
    limits = [rung_capacity(rung) for _, rung in rungs]
    finite_limits = [limit for limit in limits if limit is not None]
    if len(finite_limits) == len(limits) and sum(finite_limits) < group.nodes.max:
        message = f"all rungs together have {sum(finite_limits)} machines; the maximum is {group.nodes.max}"
        yield fault(UNREACHABLE_MAXIMUM, f"{key}.nodes.max", message, f"write max: {sum(finite_limits)}, or add a rung")


_BLOCKS = "Amazon EC2 user guide, Capacity Blocks for ML"
_RESERVATIONS = "Amazon EC2 user guide, capacity reservations"

CHECKS = (check_ladders, check_offers, check_markets, check_reservations, check_capacity)
ZONE_OF_OTHER_REGION = Rule("E203", "A zone belongs to one region.", "write a zone of this region")
_rule = partial(Rule, section="groups")
TYPE_NOT_OFFERED = _rule(
    "E302",
    "AWS does not offer the type in these zones.",
    "use another type or region",
    "EC2 DescribeInstanceTypeOfferings",
    allowable=True,
)
DUPLICATE_RUNG = _rule("E308", "The same place and market have the same capacity.", "delete one of the two")
UNDECLARED_REGION = _rule("E309", "bedplate creates resources only in declared regions.", "declare it under regions")
UNDECLARED_ZONE = _rule("E310", "Only listed zones get a subnet.", "list it in the region's zones")
INCOMPLETE_RESERVATION = _rule("E311", "A reservation is an id in one zone.", "write both reservation and zone")
UNUSED_RESERVATION = _rule(
    "E312", "Only the markets reservation and capacity-block use it.", "write one of these markets, or delete the key"
)
RESERVATION_ZONES = _rule("E315", "A reservation is in one zone.", "write the zone of the reservation")
SPOT_FABRIC = _rule(
    "W325",
    "A job on several machines fails with the first interruption.",
    "run only jobs with checkpoints on this rung, or delete it",
    "Amazon EC2 user guide, spot best practices",
    allowable=True,
)
PRICE_WITHOUT_SPOT = _rule(
    "E326",
    "Only spot instances have a maximum price.",
    "write `market: spot`, or delete max_price",
    "EC2 API, SpotMarketOptions",
)
END_WITHOUT_BLOCK = _rule(
    "E327", "Only capacity blocks have an end.", "write `market: capacity-block`, or delete ends", _BLOCKS
)
BLOCK_WITHOUT_END = _rule(
    "W328",
    "AWS terminates the machines 30 minutes before the end; bedplate cannot empty the pool in time.",
    "add ends with the end that AWS shows, such as '2027-01-31T11:30:00Z'",
    _BLOCKS,
)
COVERED_RUNG = _rule("E340", "An earlier rung has already tried this zone.", "put this rung first, or delete it")
UNREACHABLE_RUNG = _rule(
    "W341", "An earlier rung already holds the maximum of the group.", "delete the rung, or raise max"
)
RESERVATION_OF_TYPES = _rule(
    "E344", "A reservation has one instance type.", "make a group with the reserved type only", _RESERVATIONS
)
RESERVATION_DIFFERS = _rule(
    "E345", "A reservation has one type and one size.", "correct the id of the reservation", _RESERVATIONS
)
BLOCK_SIZE = _rule(
    "E346", "A capacity block has at most 64 machines.", "buy several blocks, and write a rung for each", _BLOCKS
)
NO_BLOCKS_OF_TYPE = _rule(
    "E347",
    "AWS sells capacity blocks of a few families only.",
    "write `market: reservation`, or another type",
    _BLOCKS,
    allowable=True,
)
UNREACHABLE_MAXIMUM = _rule("W352", "All rungs are reserved, so no other capacity exists.", "lower max, or add a rung")
