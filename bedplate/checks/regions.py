"""Regions and their zones: known to AWS, open to the account, and one of them the home."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from bedplate.catalog import Catalog, RegionFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.context import Evidence, planned_pools, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.ladders import holds, rungs_of
from bedplate.plan.fleet import FIXED_PREFIX
from bedplate.plan.planner import endpoint_services
from bedplate.plan.pools import PoolPlan, addresses_per_node
from bedplate.plan.space import NODES_BITS, REGION_NARROWEST, REGION_WIDEST, block_size
from bedplate.spec import Fleet
from bedplate.spec.groups import Group
from bedplate.spec.network import Interconnect, Region
from bedplate.spec.sites import EfsStore, Use


def check_regions(evidence: Evidence) -> Iterator[Fault]:
    """Tell regions and zones that AWS does not have, or not for this account."""
    for name, region in evidence.fleet.regions.items():
        key = f"regions.{name}"
        facts = evidence.catalog.regions.get(name)
        if facts is None:
            near = nearest(name, evidence.catalog.regions)
            yield fault("E201", key, f"{name} is no AWS region", f"write {near}" if near else "")
        elif facts.opt_in:
            yield fault("E204", key, f"{name} is closed to an account until it is enabled")
        yield from _zones(name, region, facts)


def check_home(evidence: Evidence) -> Iterator[Fault]:
    """Tell when no region is the home, or more than one."""
    homes = tuple(name for name, region in evidence.fleet.regions.items() if region.home)
    if not homes and evidence.is_whole("regions"):
        first = next(iter(evidence.fleet.regions))
        yield fault("E206", "regions", "no region is the home", f"write `home: true` in one, such as {first}")
    for name in homes[1:]:
        message = f"{name} is a second home region, beside {homes[0]}"
        yield fault("E206", f"regions.{name}.home", message, "delete `home: true` in one of them")


def _zones(name: str, region: Region, facts: RegionFacts | None) -> Iterator[Fault]:
    for index, zone in enumerate(region.zones):
        key = f"regions.{name}.zones.{index}"
        if zone in region.zones[:index]:
            yield fault("E205", key, f"{zone} is listed twice")
        elif not zone.startswith(name):
            fix = f"write one of {', '.join(facts.zones)}" if facts else ""
            yield fault("E203", key, f"{zone} is no zone of {name}", fix)
        elif facts and zone not in facts.zones:
            fix = f"write one of {', '.join(facts.zones)}"
            yield fault("E202", key, f"{name} has no zone {zone}", fix)


def check_interconnect(evidence: Evidence) -> Iterator[Fault]:
    """Tell what goes missing without transit gateways: pools of laptops, and regions that nothing leads to."""
    fleet = evidence.fleet
    told: list[str] = []
    if fleet.network.interconnect is Interconnect.PEERING:
        told += _across_peerings(fleet)
    if fleet.network.interconnect is Interconnect.NONE:
        told += _alone(fleet)
    if fleet.network.interconnect is not Interconnect.TRANSIT:
        told += _laptops_and_sites(fleet)
    if told:
        yield fault("W208", "network.interconnect", "; ".join(told))


def check_out_of_reach(evidence: Evidence) -> Iterator[Fault]:
    """Tell workers in regions from which nothing leads to the control plane."""
    fleet = evidence.fleet
    home = next((name for name, region in fleet.regions.items() if region.home), None)
    if fleet.network.interconnect is not Interconnect.NONE or home is None:
        return
    for name, group in fleet.groups.items():
        for key, rung in rungs_of(name, group):
            if group.use is Use.KUBERNETES and rung.region in fleet.regions and not _meet(fleet, rung.region, home):
                message = f"nothing leads from {rung.region} to the control plane in {home}"
                yield fault("E342", f"{key}.region", message)


def _gateways(fleet: Fleet) -> Iterator[str]:
    """Yield the regions that have a laptop gateway."""
    laptops = fleet.vpn.laptops if fleet.vpn else None
    yield from (gateway.region for gateway in (laptops.gateways if laptops else ()) if gateway.region)


def _meet(fleet: Fleet, region: str, home: str) -> bool:
    """Tell whether two regions are one, or both have a gateway, which joins them."""
    return region == home or {region, home} <= set(_gateways(fleet))


def _alone(fleet: Fleet) -> Iterator[str]:
    """Tell of regions that stay alone where somebody may think that gateways join them."""
    joined = tuple(_gateways(fleet))
    alone = [name for name in fleet.regions if name not in joined]
    if joined and alone:
        others = f"gateways join {' and '.join(joined)}" if len(joined) > 1 else f"one in {joined[0]} joins nothing"
        yield f"nothing leads from {' or '.join(alone)} to another region, without a gateway of laptops: {others}"


def _across_peerings(fleet: Fleet) -> Iterator[str]:
    if len(fleet.regions) > 1:
        for where in _gateways(fleet):
            yield f"laptops at the gateway in {where} reach {where} alone: no pool crosses a peering"


def _laptops_and_sites(fleet: Fleet) -> Iterator[str]:
    for where in _gateways(fleet) if fleet.sites else ():
        sites = " and ".join(sorted(fleet.sites))
        why = "a virtual private gateway leads to the region's own block, not to a pool behind it"
        yield f"laptops at the gateway in {where} and {sites} do not reach each other: {why}"


def check_endpoints(evidence: Evidence) -> Iterator[Fault]:
    """Tell services that are listed more than once."""
    asked = enumerate(evidence.fleet.network.endpoints)
    for key, endpoint, _ in repeated((f"network.endpoints.{index}", each) for index, each in asked):
        yield fault("E209", key, f"{endpoint.value} is listed twice")


# What AWS keeps of every subnet (Amazon VPC user guide, subnet sizing), and what stands there beside machines:
# the interfaces of resolvers.
_AWS, _RESOLVERS = 5, 4


def check_room(evidence: Evidence) -> Iterator[Fault]:
    """Tell regions whose subnets cannot hold what groups may have there, and minimums that the first pool cannot."""
    ladders = planned_pools(evidence)
    for name, pools in ladders.items():
        yield from _first(evidence, f"groups.{name}", evidence.fleet.groups[name], pools)
    wanted = _wanted(ladders, evidence.catalog)
    for region in evidence.fleet.regions:
        room = zone_room(evidence, region)
        zones = {zone: groups for (place, zone), groups in wanted.items() if place == region}
        if zones and room is not None:
            yield from _crowded(region, zones, room)


def zone_room(evidence: Evidence, region: str) -> int | None:
    """Return how many addresses machines may have in one zone; None where the region's block is no good itself."""
    fleet = evidence.fleet
    block = fleet.regions[region].block
    prefix = block.prefixlen if block else fleet.network.region_size
    if not REGION_WIDEST <= prefix <= REGION_NARROWEST:
        return None
    systems = sum(isinstance(store, EfsStore) and store.region == region for store in fleet.storage.values())
    others = _RESOLVERS + systems + len(endpoint_services(fleet))
    return block_size(prefix + NODES_BITS) - _AWS - block_size(FIXED_PREFIX) - others


def _first(evidence: Evidence, key: str, group: Group, pools: tuple[PoolPlan, ...]) -> Iterator[Fault]:
    """Tell a minimum that the first pool, which keeps all of it, cannot hold."""
    if not pools or not pools[0].zones:
        return
    room = zone_room(evidence, pools[0].region)
    limits = [] if room is None else [room * len(pools[0].zones) // _addresses(pools[0], evidence.catalog)]
    limits += [limit for limit in [holds(group.ladder[0])] if limit is not None]
    if limits and group.nodes.min > min(limits):
        message = f"the first pool keeps the minimum, {group.nodes.min}, and can hold {min(limits)}"
        yield fault(
            "E343", f"{key}.nodes.min", message, f"write min: {min(limits)}, or put a rung with more room first"
        )


def _addresses(pool: PoolPlan, catalog: Catalog) -> int:
    return max(addresses_per_node(catalog.types.get(name), pool.fabric) for name in pool.types)


def _wanted(
    ladders: Mapping[str, tuple[PoolPlan, ...]], catalog: Catalog
) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return how many addresses each group may take in each region and zone, wherever its machines find capacity."""
    wanted: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for name, pools in ladders.items():
        for place in dict.fromkeys((pool.region, zone) for pool in pools for zone in pool.zones):
            wanted[place][name] = _fullest([pool for pool in pools if place in _places(pool)], catalog)
    return wanted


def _places(pool: PoolPlan) -> tuple[tuple[str, str], ...]:
    return tuple((pool.region, zone) for zone in pool.zones)


def _fullest(pools: list[PoolPlan], catalog: Catalog) -> int:
    """Return the addresses of one group in one zone at the worst: first the pools that have no other zone.

    A pool of several zones spreads evenly, and all together hold no more machines than the group may have.
    """
    left, addresses = pools[0].most, 0
    for pool in sorted(pools, key=lambda pool: len(pool.zones)):
        machines = min(pool.max, left)
        left -= machines
        addresses += -(-machines // len(pool.zones)) * _addresses(pool, catalog)
    return addresses


def _crowded(region: str, zones: Mapping[str, Mapping[str, int]], room: int) -> Iterator[Fault]:
    """Tell the zone that lacks most, once for a region."""
    zone = max(zones, key=lambda name: (sum(zones[name].values()), name))
    total = sum(zones[zone].values())
    if total > room:
        most = sorted(zones[zone].items(), key=lambda item: (-item[1], item[0]))
        shares = ", ".join(f"{name} {count}" for name, count in most)
        message = f"{zone} has {room} addresses for machines; its groups may take {total}: {shares}"
        yield fault("E348", f"regions.{region}", message)


NETWORK_RULES = (
    Rule(
        "E201",
        "unknown-region",
        "AWS has no such region, as far as the catalogue knows.",
        "write an AWS region's name",
        "EC2 DescribeRegions",
        allowable=True,
        at_key=True,
    ),
    Rule(
        "E202",
        "unknown-zone",
        "The region has no such zone for new accounts; local zones are not supported.",
        "write one of the region's zones",
        "EC2 DescribeAvailabilityZones",
        allowable=True,
    ),
    Rule("E203", "zone-elsewhere", "A zone belongs to one region.", "write a zone of this region"),
    Rule(
        "E204",
        "opt-in-region",
        "An account must enable this region before anything can be made in it.",
        "enable it, then allow E204 with the date; or choose another region",
        "AWS General Reference, enabling regions",
        allowable=True,
        at_key=True,
    ),
    Rule("E205", "zone-twice", "Each zone gets one edge and one node subnet.", "delete one of them"),
    Rule(
        "E206",
        "home-region",
        "One region holds what the fleet has once.",
        "write `home: true` in exactly one region",
    ),
    Rule(
        "W208",
        "carries-less",
        "Peerings and virtual private gateways lead to their VPCs' own blocks alone, and gateways of laptops to the "
        "regions that have one.",
        "write `interconnect: transit`, or give each region a gateway of laptops where it is none",
        "Amazon VPC peering guide, limitations; AWS Site-to-Site VPN user guide, virtual private gateways",
        allowable=True,
    ),
    Rule("E209", "endpoint-twice", "A service has one endpoint a region.", "delete one of them"),
    Rule("E230", "supernet-exhausted", "Every block lies in the supernet.", "declare a larger supernet"),
    Rule("E231", "renumbers-block", "Blocks in use never move.", "keep the size that is recorded"),
    Rule("E232", "touches-recorded-block", "Two places cannot share addresses.", "declare another block"),
    Rule("E233", "outside-supernet", "Recorded blocks lie in the supernet.", "keep the recorded supernet"),
    Rule("E234", "subnets-do-not-fit", "Each zone needs an edge and a node subnet.", "declare a larger block"),
    Rule("E235", "zone-slots-exhausted", "A region has room for seven zones.", "use zones that it had before"),
    Rule("E236", "tunnels-exhausted", "Each tunnel needs its own /30.", "declare fewer sites or regions"),
    Rule("E290", "unusable-lock", "What is recorded must be known before more is.", "restore it from its history"),
)
