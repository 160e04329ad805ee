"""Ladders: rungs in places that the file declares, each of them worth trying after those before it."""

from collections.abc import Iterator
from itertools import islice

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.context import Evidence, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.groups import gpus, kind_of
from bedplate.checks.lifetimes import is_past
from bedplate.spec.groups import Fabric, Group, Market, Rung

Rungs = tuple[tuple[str, Rung], ...]


def check_ladders(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong with the place of each rung of each group."""
    for name, group in evidence.fleet.groups.items():
        rungs = rungs_of(name, group)
        for key, rung in rungs:
            yield from undeclared_region(evidence, f"{key}.region", rung.region)
            yield from _zone(evidence, key, rung)
        yield from _again(rungs)
        yield from _covered(group, rungs)


def rungs_of(name: str, group: Group) -> Rungs:
    """Return the rungs of a group, each with its key."""
    return tuple((f"groups.{name}.ladder.{index}", rung) for index, rung in enumerate(group.ladder))


def undeclared_region(evidence: Evidence, key: str, region: str) -> Iterator[Fault]:
    """Tell a region that the file uses without declaring it; where the declaration is misspelt, that one is told."""
    regions = evidence.declared.names("regions")
    if region not in regions and not _is_meant(evidence, region):
        near = nearest(region, regions)
        yield fault("E309", key, f"{region} is no region of this file", f"write {near}" if near else "")


def _is_meant(evidence: Evidence, region: str) -> bool:
    """Tell whether a name that the file declares, and AWS does not have, was meant to be that region."""
    known = evidence.catalog.regions
    near = nearest(region, evidence.declared.names("regions") - known.keys())
    return near is not None and nearest(near, known) == region


def _zone(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    zones = evidence.declared.names("regions", rung.region, "zones")
    if rung.zone is None or not zones or rung.zone in zones:
        return
    if not rung.zone.startswith(rung.region):
        yield fault("E203", f"{key}.zone", f"{rung.zone} is no zone of {rung.region}")
    else:
        message = f"{rung.region} does not list {rung.zone}"
        yield fault("E310", f"{key}.zone", message, f"list it, or write one of {', '.join(sorted(zones))}")


def _again(rungs: Rungs) -> Iterator[Fault]:
    """Tell two rungs that would be one Auto Scaling group, whatever else they say."""
    same = dict(rungs)
    pools = ((key, (rung.region, rung.zone, rung.market, rung.reservation)) for key, rung in rungs)
    for key, _, first in repeated(pools):
        but = "" if same[key] == same[first] else ", but for what it says beside place and market"
        yield fault("E308", key, f"rung {_number(key)} is the same as rung {_number(first)}{but}")


def _covered(group: Group, rungs: Rungs) -> Iterator[Fault]:
    """Tell a rung of one zone that comes after one of its whole region, and rungs after enough is reserved."""
    for index, (key, rung) in enumerate(rungs):
        for other, earlier in rungs[:index]:
            if rung.zone and _covers(earlier, rung):
                yield fault("E340", key, f"rung {_number(other)} has tried all of {rung.region}, {rung.zone} included")
                break
            if earlier.reserved and not earlier.ends and earlier.reserved >= group.nodes.max > 0:
                message = f"rung {_number(other)} holds {earlier.reserved} machines; the group never has more than "
                yield fault("W341", key, f"{message}{group.nodes.max}")
                break


def _covers(earlier: Rung, later: Rung) -> bool:
    """Tell whether a rung takes all that a later one could, in its region and at its price."""
    alike = (earlier.region, earlier.market, earlier.zone) == (later.region, later.market, None)
    dearer = earlier.max_price is not None and (later.max_price is None or later.max_price > earlier.max_price)
    return alike and earlier.reservation is None and not dearer


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1


RESERVED = (Market.RESERVATION, Market.CAPACITY_BLOCK)


def check_markets(evidence: Evidence) -> Iterator[Fault]:
    """Tell what each rung lacks for its market, and what its market has no use for."""
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            yield from _idle(key, rung)
            yield from _spot(key, rung, group)
            if rung.market in RESERVED:
                yield from _incomplete(evidence, key, rung)
            if rung.market is Market.CAPACITY_BLOCK:
                yield from _end(evidence, key, rung)


def _idle(key: str, rung: Rung) -> Iterator[Fault]:
    """Tell keys that the rung's market does not use."""
    if rung.market not in RESERVED and rung.reservation:
        yield fault("E312", f"{key}.reservation", f"{rung.reservation} is not used by market {rung.market}")
    if rung.market not in RESERVED and rung.reserved:
        yield fault(
            "E312", f"{key}.reserved", f"nothing is reserved by market {rung.market}", "set market, or delete it"
        )
    if rung.market is not Market.SPOT and rung.max_price is not None:
        yield fault("E326", f"{key}.max_price", f"market {rung.market} takes no price")
    if rung.market is not Market.CAPACITY_BLOCK and rung.ends:
        yield fault("E327", f"{key}.ends", f"market {rung.market} does not end")


def _spot(key: str, rung: Rung, group: Group) -> Iterator[Fault]:
    if rung.market is Market.SPOT and group.fabric is Fabric.EFA:
        yield fault("W325", key, "a job over several of these machines ends when AWS takes one of them back")


def _incomplete(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    for name, value in (("reservation", rung.reservation), ("zone", rung.zone)):
        if value is None and not evidence.declared.says(key, name):
            yield fault("E311", f"{key}.{name}", f"market {rung.market} needs the {name}", f"add {name}")


def _end(evidence: Evidence, key: str, rung: Rung) -> Iterator[Fault]:
    if rung.ends and is_past(rung.ends, evidence.today):
        message = f"the block ended on {rung.ends[:10]}; today is {evidence.today}"
        yield fault("E329", f"{key}.ends", message, "delete the rung, or name a block that has not ended")
    elif rung.ends is None and not evidence.declared.says(key, "ends"):
        yield fault("W328", f"{key}.ends", "nobody says when the block ends", "add ends: '2027-01-31T11:30:00Z'")


_MOST_NAMED = 2


def check_offers(evidence: Evidence) -> Iterator[Fault]:
    """Tell rungs on which no type of the group can be had, and the nearest that can."""
    for name, group in evidence.fleet.groups.items():
        known = [evidence.catalog.types[kind] for kind in group.types if kind in evidence.catalog.types]
        if len(known) == len(group.types):
            yield from _ladder(evidence, f"groups.{name}", group, known)


def _ladder(evidence: Evidence, key: str, group: Group, known: list[InstanceFacts]) -> Iterator[Fault]:
    for index, rung in enumerate(group.ladder):
        wanted = _wanted_zones(evidence, rung)
        offered = {zone for facts in known for zone in evidence.catalog.offered(facts.name, rung.region)}
        if wanted and offered.isdisjoint(wanted):
            message = f"{', '.join(sorted(wanted))} do not offer {' or '.join(facts.name for facts in known)}"
            yield fault("E302", f"{key}.ladder.{index}", message, _fix(evidence.catalog, group, known, offered, wanted))


def _wanted_zones(evidence: Evidence, rung: Rung) -> frozenset[str]:
    """Return the zones that a rung may use; none where region or zone is faulty itself."""
    region = evidence.fleet.regions.get(rung.region)
    if region is None or rung.region not in evidence.catalog.regions:
        return frozenset()
    return frozenset(zone for zone in region.zones if rung.zone in (None, zone))


def _fix(catalog: Catalog, group: Group, known: list[InstanceFacts], offered: set[str], wanted: frozenset[str]) -> str:
    ways = []
    if offered:
        ways.append(f"use {', '.join(sorted(offered))}")
    if near := tuple(islice(_alternatives(catalog, known[0], wanted, fabric=group.fabric is not None), _MOST_NAMED)):
        ways.append(f"write {' or '.join(near)}")
    regions = sorted({region for facts in known for region in catalog.regions_offering(facts.name)})
    if regions and not offered:
        ways.append(f"use one of {', '.join(regions)}")
    return ", or ".join(ways)


def _alternatives(catalog: Catalog, facts: InstanceFacts, zones: frozenset[str], *, fabric: bool) -> Iterator[str]:
    """Yield the types of the same kind that one of the zones offers, the likest first."""
    alike = [
        other
        for other in catalog.types.values()
        if kind_of(other) == kind_of(facts) and gpus(other) == gpus(facts) and (other.efa or not fabric)
    ]
    for other in sorted(alike, key=lambda other: _distance(facts, other)):
        if not zones.isdisjoint(
            zone for name in {zone[:-1] for zone in zones} for zone in catalog.offered(other.name, name)
        ):
            yield other.name


def _distance(facts: InstanceFacts, other: InstanceFacts) -> tuple[int, int, int, str]:
    mine, theirs = (one.gpu.memory_mib if one.gpu else 0 for one in (facts, other))
    return abs(theirs - mine), abs(other.vcpus - facts.vcpus), abs(other.memory_mib - facts.memory_mib), other.name


# Amazon EC2 user guide, Capacity Blocks for ML: instances of one block, and the types that are sold.
MOST_OF_BLOCK = 64
BLOCK_FAMILIES = frozenset(
    {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200", "p6e-gb300", "trn1", "trn2"}
)


def check_reservations(evidence: Evidence) -> Iterator[Fault]:
    """Tell reservations that are said to be of two zones, two types or two sizes."""
    zones: dict[str, str] = {}
    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            ident = rung.reservation
            if ident is None or rung.market not in RESERVED:
                continue
            if rung.zone and zones.setdefault(ident, rung.zone) != rung.zone:
                yield fault("E315", f"{key}.zone", f"{ident} is in {zones[ident]} elsewhere in this file")
            if rung.reserved and sizes.setdefault(ident, rung.reserved) != rung.reserved:
                message = f"{ident} holds {sizes[ident]} machines elsewhere in this file"
                yield fault("E345", f"{key}.reserved", message, f"write {sizes[ident]} in both, or correct the other")
            if types.setdefault(ident, group.types[0]) != group.types[0]:
                yield fault("E345", f"{key}.reservation", f"{ident} is of {types[ident]} elsewhere in this file")


def check_blocks(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups and rungs that a reservation or a block cannot serve."""
    for name, group in evidence.fleet.groups.items():
        for key, rung in rungs_of(name, group):
            if rung.market in RESERVED and len(group.types) > 1:
                yield fault("E344", key, f"it would have to hold {' and '.join(group.types)}")
            if rung.market is Market.CAPACITY_BLOCK:
                yield from _block(key, rung, group)
        yield from _never_filled(f"groups.{name}", group, rungs_of(name, group))


def holds(rung: Rung) -> int | None:
    """Return how many machines a rung can hold by what it is; None where nothing limits it."""
    if rung.market not in RESERVED:
        return None
    return rung.reserved or (MOST_OF_BLOCK if rung.market is Market.CAPACITY_BLOCK else None)


def _block(key: str, rung: Rung, group: Group) -> Iterator[Fault]:
    if rung.reserved and rung.reserved > MOST_OF_BLOCK:
        yield fault("E346", f"{key}.reserved", f"{rung.reserved} machines are more than a block has")
    for kind in group.types:
        if kind.partition(".")[0] not in BLOCK_FAMILIES:
            yield fault("E347", key, f"AWS sells no capacity blocks of {kind}")


def _never_filled(key: str, group: Group, rungs: Rungs) -> Iterator[Fault]:
    """Tell a maximum that all rungs together cannot hold; where one is without a limit there is none."""
    limits = [holds(rung) for _, rung in rungs]
    known = [limit for limit in limits if limit is not None]
    if len(known) == len(limits) and sum(known) < group.nodes.max:
        message = f"all rungs together hold {sum(known)} machines; the maximum is {group.nodes.max}"
        yield fault("W352", f"{key}.nodes.max", message, f"write max: {sum(known)}, or add a rung")


LADDER_RULES = (
    Rule(
        "E302",
        "type-not-offered",
        "The place does not offer the type.",
        "choose another",
        "EC2 DescribeInstanceTypeOfferings",
        allowable=True,
    ),
    Rule("E308", "rung-twice", "A second try of the same place and market finds the same.", "delete one of them"),
    Rule(
        "E309",
        "undeclared-region",
        "Nothing is built in a region that the file does not declare.",
        "declare it under regions",
    ),
    Rule(
        "E310",
        "undeclared-zone",
        "A zone that the region does not list has no subnet.",
        "list it in the region's zones",
    ),
    Rule("E311", "reservation-incomplete", "A reservation is an id in one zone.", "give both reservation and zone"),
    Rule("E312", "reservation-unused", "Only reserved markets use a reservation.", "set market, or delete the id"),
    Rule("E315", "reservation-zones", "A reservation lies in one zone.", "name the zone that it lies in"),
    Rule(
        "W325",
        "spot-fabric",
        "A job over several machines ends with the first that is interrupted.",
        "use it for jobs that save and resume, or delete the rung",
        "Amazon EC2 user guide, spot best practices",
        allowable=True,
    ),
    Rule(
        "E326",
        "price-without-spot",
        "Only spot is bought at a price of one's own.",
        "write market: spot, or delete max_price",
        "EC2 API, SpotMarketOptions",
    ),
    Rule(
        "E327",
        "end-without-block",
        "Only capacity blocks end.",
        "write market: capacity-block, or delete ends",
        "Amazon EC2 user guide, Capacity Blocks for ML",
    ),
    Rule(
        "W328",
        "block-without-end",
        "AWS ends the machines half an hour before the block does; bedplate cannot empty the pool in time.",
        "add ends, as AWS tells it of the block",
        "Amazon EC2 user guide, Capacity Blocks for ML",
    ),
    Rule("E340", "rung-covered", "An earlier rung has looked there already.", "put the zone first, or delete the rung"),
    Rule(
        "W341",
        "rung-never-reached",
        "An earlier rung holds all that the group may have.",
        "delete the rung, or raise max",
    ),
    Rule(
        "E342",
        "region-out-of-reach",
        "Workers speak to the control plane all the time.",
        "write interconnect: transit or peering, give both regions a gateway of laptops, or keep to the home region",
    ),
    Rule(
        "E343",
        "minimum-does-not-fit",
        "The first pool keeps the minimum, and AWS would never fill it.",
        "lower min, or put a rung with more room first",
    ),
    Rule(
        "E344",
        "reservation-of-types",
        "A reservation holds machines of one type.",
        "make a group of the type that it holds",
        "Amazon EC2 user guide, capacity reservations",
    ),
    Rule(
        "E345",
        "reservation-differs",
        "A reservation is of one type and one size.",
        "name the reservation that is meant",
        "Amazon EC2 user guide, capacity reservations",
    ),
    Rule(
        "E346",
        "block-size",
        "A capacity block has at most 64 machines.",
        "buy several blocks, and make each a rung",
        "Amazon EC2 user guide, Capacity Blocks for ML",
    ),
    Rule(
        "E347",
        "no-blocks-of-type",
        "AWS sells capacity blocks of a few types alone.",
        "write market: reservation, or another type",
        "Amazon EC2 user guide, Capacity Blocks for ML",
        allowable=True,
    ),
    Rule(
        "E348",
        "subnet-too-small",
        "A machine without an address does not start, however much capacity AWS has.",
        "declare a larger block or region_size, list more zones, or lower the maximums",
        "Amazon VPC user guide, subnet sizing",
        allowable=True,
    ),
    Rule(
        "E349",
        "no-image",
        "Once images are baked, machines without one would start bare among the others.",
        "copy or bake one there, and record it in fleet.lock",
        allowable=True,
        late=True,
    ),
    Rule(
        "E350",
        "name-too-long",
        "Pools are named after group, place and market, with the fleet's name before them.",
        "shorten the group's name",
        "EC2 API, CreateLaunchTemplate",
    ),
    Rule(
        "E353",
        "name-of-control-plane",
        "Machines of the control plane have these names already.",
        "give the group another name",
    ),
    Rule("W352", "maximum-never-reached", "What is reserved is all that there is.", "lower max, or add a rung"),
)
