"""Regions and zones, the connections of regions, VPC endpoints, and the addresses that groups need in each zone."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

from bedplate.catalog import Catalog, RegionFacts
from bedplate.checks.diagnostics import Context, one_of, planned_pools, repeated
from bedplate.checks.ladders import ZONE_OF_OTHER_REGION, keyed_rungs, rung_capacity
from bedplate.errors import nearest
from bedplate.plan.planner import endpoint_services
from bedplate.plan.pools import PoolPlan, addresses_per_node
from bedplate.plan.space import FIXED_PREFIX, NODES_BITS, REGION_NARROWEST, REGION_WIDEST, block_size
from bedplate.rules import Fault, Rule, fault
from bedplate.spec import Fleet
from bedplate.spec.groups import Group
from bedplate.spec.network import Interconnect, Region
from bedplate.spec.sites import cloud_mounts


def check_regions(context: Context) -> Iterator[Fault]:
    """Yield faults of regions and zones that do not exist, or that the account must enable first."""
    for name, region in context.fleet.regions.items():
        key = f"regions.{name}"
        facts = context.catalog.regions.get(name)
        if facts is None:
            yield _unknown_region(context, key, name)
        elif facts.opt_in:
            yield fault(OPT_IN_REGION, key, f"{name} is disabled until the account enables it")
        yield from _check_zones(name, region, facts)


# Regions of other partitions than `aws`: accounts, prices and services there are others.
_PARTITIONS = {"cn-": "China", "us-gov-": "GovCloud", "us-iso": "an isolated partition", "eusc-": "the European cloud"}


def _unknown_region(context: Context, key: str, name: str) -> Fault:
    partition = next((partition for start, partition in _PARTITIONS.items() if name.startswith(start)), None)
    if partition:
        message = f"{name} is a region of AWS {partition}, which bedplate does not support"
        regions = (region for region, facts in context.catalog.regions.items() if not facts.opt_in)
        return fault(UNKNOWN_REGION, key, message, one_of(regions))
    near = nearest(name, context.catalog.regions)
    return fault(UNKNOWN_REGION, key, f"AWS has no region {name}", f"write {near}" if near else "")


def check_home(context: Context) -> Iterator[Fault]:
    """Yield faults if there is no home region, or more than one."""
    homes = tuple(name for name, region in context.fleet.regions.items() if region.home)
    if not homes and context.is_whole("regions"):
        first = next(iter(context.fleet.regions))
        yield fault(
            HOME_REGION, "regions", "no region is the home region", f"write `home: true` in one, such as {first}"
        )
    for name in homes[1:]:
        message = f"two home regions: {homes[0]} and {name}"
        yield fault(HOME_REGION, f"regions.{name}.home", message, "delete `home: true` in one of them")


def check_unused_regions(context: Context) -> Iterator[Fault]:
    """Yield a warning about each region that no rung, store, hub or laptop gateway uses."""
    fleet = context.fleet
    used = {rung.region for group in fleet.groups.values() for rung in group.ladder} | set(_gateway_regions(fleet))
    for store in fleet.storage.values():
        used |= {store.region} if store.kind == "efs" else set(store.regions) if store.kind == "s3" else set()
    used |= {fleet.hub.region} if fleet.hub and fleet.hub.region else set()
    # A region that the file or AWS does not have may be this one, misspelt.
    if not used | fleet.regions.keys() <= context.catalog.regions.keys() or not used <= fleet.regions.keys():
        return
    for name, region in fleet.regions.items():
        if not region.home and name not in used and context.is_whole("groups"):
            yield fault(UNUSED_REGION, f"regions.{name}", f"no ladder, store, hub or gateway of laptops uses {name}")


def _check_zones(name: str, region: Region, facts: RegionFacts | None) -> Iterator[Fault]:
    for index, zone in enumerate(region.zones):
        key = f"regions.{name}.zones.{index}"
        if zone in region.zones[:index]:
            yield fault(DUPLICATE_ZONE, key, f"{zone} is listed twice")
        elif facts and not zone.startswith(name):
            yield fault(ZONE_OF_OTHER_REGION, key, f"{zone} is not a zone of {name}", one_of(facts.zones))
        elif facts and zone not in facts.zones:
            yield fault(UNKNOWN_ZONE, key, f"{name} has no zone {zone}", one_of(facts.zones))


def check_interconnect(context: Context) -> Iterator[Fault]:
    """Yield a warning about connections that are missing without transit gateways."""
    fleet = context.fleet
    limits: list[str] = []
    if fleet.network.interconnect is Interconnect.PEERING:
        limits += _unpeered_pools(fleet)
    if fleet.network.interconnect is Interconnect.NONE:
        limits += _isolated_regions(fleet)
    if fleet.network.interconnect is not Interconnect.TRANSIT:
        limits += _laptops_without_sites(fleet)
    if limits:
        yield fault(LIMITED_ROUTING, "network.interconnect", "; ".join(limits))


def check_control_plane_access(context: Context) -> Iterator[Fault]:
    """Yield faults of workers in regions without a connection to the control plane."""
    fleet = context.fleet
    home = next((name for name, region in fleet.regions.items() if region.home), None)
    if fleet.network.interconnect is not Interconnect.NONE or home is None:
        return
    for name, group in fleet.groups.items():
        for key, rung in keyed_rungs(name, group):
            region = rung.region
            if group.use.is_worker and region in fleet.regions and not _are_connected(fleet, region, home):
                message = f"{region} has no connection to the control plane in {home}"
                yield fault(NO_CONTROL_PLANE_ACCESS, f"{key}.region", message)


def _gateway_regions(fleet: Fleet) -> Iterator[str]:
    """Yield the regions with a laptop gateway."""
    laptops = fleet.vpn.laptops if fleet.vpn else None
    yield from (gateway.region for gateway in (laptops.gateways if laptops else ()) if gateway.region)


def _are_connected(fleet: Fleet, region: str, home: str) -> bool:
    """Return whether two regions are the same, or connected by a laptop gateway in each."""
    return region == home or {region, home} <= set(_gateway_regions(fleet))


def _isolated_regions(fleet: Fleet) -> Iterator[str]:
    """Yield a message about regions without a laptop gateway, if other regions have one."""
    connected = tuple(_gateway_regions(fleet))
    isolated = [name for name in fleet.regions if name not in connected]
    if connected and isolated:
        verb = "have" if len(isolated) > 1 else "has"
        yield f"{' and '.join(isolated)} {verb} no connection to other regions: only laptop gateways connect regions"


def _unpeered_pools(fleet: Fleet) -> Iterator[str]:
    if len(fleet.regions) > 1:
        for region in _gateway_regions(fleet):
            yield f"laptops at the gateway in {region} reach only {region}: VPC peering does not route their addresses"


def _laptops_without_sites(fleet: Fleet) -> Iterator[str]:
    for region in _gateway_regions(fleet) if fleet.sites else ():
        sites = " and ".join(sorted(fleet.sites))
        reason = "a virtual private gateway routes only the block of its VPC"
        yield f"laptops at the gateway in {region} cannot reach {sites}: {reason}"


def check_endpoints(context: Context) -> Iterator[Fault]:
    """Yield faults of VPC endpoints that are listed twice."""
    endpoints = enumerate(context.fleet.network.endpoints)
    for key, endpoint, _ in repeated((f"network.endpoints.{index}", endpoint) for index, endpoint in endpoints):
        yield fault(DUPLICATE_ENDPOINT, key, f"{endpoint.value} is listed twice")


# Addresses that AWS reserves in every subnet (Amazon VPC user guide, subnet sizing), and interfaces of resolvers.
_AWS, _RESOLVERS = 5, 4


def check_addresses(context: Context) -> Iterator[Fault]:
    """Yield faults of subnets that are smaller than their groups, and of minimums that the first pool cannot hold."""
    ladders = planned_pools(context)
    for name, pools in ladders.items():
        yield from _check_minimum(context, f"groups.{name}", context.fleet.groups[name], pools)
    demand = _demand(ladders, context.catalog)
    for region in context.fleet.regions:
        capacity = zone_capacity(context, region)
        zones = {zone: groups for (place, zone), groups in demand.items() if place == region}
        if zones and capacity is not None:
            yield from _check_zone_capacity(region, zones, capacity)


def zone_capacity(context: Context, region: str) -> int | None:
    """Return the number of addresses for machines in one zone; None if the size of the region is invalid."""
    fleet = context.fleet
    block = fleet.regions[region].block
    prefix = block.prefixlen if block else fleet.network.region_size
    if not REGION_WIDEST <= prefix <= REGION_NARROWEST:
        return None
    file_systems = sum(place == region for _, place, _ in cloud_mounts(fleet.storage))
    others = _RESOLVERS + file_systems + len(endpoint_services(fleet))
    return block_size(prefix + NODES_BITS) - _AWS - block_size(FIXED_PREFIX) - others


def _check_minimum(context: Context, key: str, group: Group, pools: tuple[PoolPlan, ...]) -> Iterator[Fault]:
    """Yield a fault if the first pool, which holds all of the minimum, is too small for it."""
    if not pools or not pools[0].zones:
        return
    capacity = zone_capacity(context, pools[0].region)
    limits = [] if capacity is None else [capacity * len(pools[0].zones) // _node_addresses(pools[0], context.catalog)]
    limits += [limit for limit in [rung_capacity(group.ladder[0])] if limit is not None]
    if limits and group.nodes.min > min(limits):
        message = f"the first pool must hold the minimum, {group.nodes.min}, but has capacity for {min(limits)}"
        yield fault(
            MINIMUM_DOES_NOT_FIT, f"{key}.nodes.min", message, f"write min: {min(limits)}, or put a larger rung first"
        )


def _node_addresses(pool: PoolPlan, catalog: Catalog) -> int:
    return max(addresses_per_node(catalog.types.get(name), pool.fabric) for name in pool.types)


def _demand(
    ladders: Mapping[str, tuple[PoolPlan, ...]], catalog: Catalog
) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return how many addresses each group may need, by region and zone."""
    demand: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for name, pools in ladders.items():
        for place in dict.fromkeys((pool.region, zone) for pool in pools for zone in pool.zones):
            local = [pool for pool in pools if pool.region == place[0] and place[1] in pool.zones]
            demand[place][name] = _worst_case(local, catalog)
    return demand


def _worst_case(pools: list[PoolPlan], catalog: Catalog) -> int:
    """Return the most addresses that one group may need in one zone: pools with no other zone are filled first.

    A pool of several zones spreads evenly, and all pools together hold at most the maximum of the group.
    """
    left, addresses = pools[0].group_spec.nodes.max, 0
    for pool in sorted(pools, key=lambda pool: len(pool.zones)):
        machines = min(pool.max, left)
        left -= machines
        addresses += -(-machines // len(pool.zones)) * _node_addresses(pool, catalog)
    return addresses


def _check_zone_capacity(region: str, zones: Mapping[str, Mapping[str, int]], capacity: int) -> Iterator[Fault]:
    """Yield a fault for the fullest zone of a region."""
    zone = max(zones, key=lambda name: (sum(zones[name].values()), name))
    total = sum(zones[zone].values())
    if total > capacity:
        groups = sorted(zones[zone].items(), key=lambda item: (-item[1], item[0]))
        shares = ", ".join(f"{name} {count}" for name, count in groups)
        message = f"{zone} has {capacity} addresses for machines, but its groups may need {total}: {shares}"
        yield fault(SUBNET_TOO_SMALL, f"regions.{region}", message)


CHECKS = (
    check_regions,
    check_home,
    check_unused_regions,
    check_interconnect,
    check_endpoints,
    check_control_plane_access,
    check_addresses,
)
UNKNOWN_REGION = Rule(
    "E201",
    "The catalog has no such AWS region.",
    "write the name of an AWS region",
    "EC2 DescribeRegions",
    allowable=True,
    at_key=True,
)
UNKNOWN_ZONE = Rule(
    "E202",
    "New accounts have no such zone in the region; bedplate does not support local zones.",
    "write a zone of the region",
    "EC2 DescribeAvailabilityZones",
    allowable=True,
)
OPT_IN_REGION = Rule(
    "E204",
    "An account must enable this region before it can create resources there.",
    "enable it and write `allow: {E204: REASON}`, or use another region",
    "AWS General Reference, enabling regions",
    allowable=True,
    at_key=True,
)
DUPLICATE_ZONE = Rule("E205", "Each zone gets one edge and one node subnet.", "delete one of the two")
HOME_REGION = Rule("E206", "Exactly one region holds the shared resources.", "write `home: true` in exactly one region")
UNUSED_REGION = Rule(
    "W217",
    "A region costs money without machines: its NAT gateways, endpoints, and attachments of transit gateways.",
    "delete the region, or add a rung for it",
    "`bedplate cost`, which has the rows of each region",
    allowable=True,
    at_key=True,
)
LIMITED_ROUTING = Rule(
    "W208",
    "VPC peering and virtual private gateways route only the blocks of their VPCs. "
    "Laptop gateways connect only regions that have one.",
    "write `interconnect: transit`, or with `none` a laptop gateway in each region",
    "Amazon VPC peering guide, limitations; AWS Site-to-Site VPN user guide, virtual private gateways",
    allowable=True,
)
DUPLICATE_ENDPOINT = Rule("E209", "A service has one endpoint per region.", "delete one of the two")
_group_rule = partial(Rule, section="groups")
NO_CONTROL_PLANE_ACCESS = _group_rule(
    "E342",
    "Workers need a permanent connection to the control plane.",
    "write `interconnect: transit` or `peering`, add a laptop gateway in both regions, or use the home region",
)
MINIMUM_DOES_NOT_FIT = _group_rule(
    "E343", "The first pool must hold all machines of the minimum.", "lower min, or put a larger rung first"
)
SUBNET_TOO_SMALL = _group_rule(
    "E348",
    "A machine without a free address cannot start.",
    "declare a larger block or region_size, list more zones, or lower the maximums",
    "Amazon VPC user guide, subnet sizing",
    allowable=True,
)
