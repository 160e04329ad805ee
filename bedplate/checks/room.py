"""Room in subnets: every machine that a group may have needs addresses in the subnet of its zone."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from bedplate.catalog import Catalog
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.pools import planned_pools
from bedplate.checks.reservation import holds
from bedplate.checks.rules import fault
from bedplate.plan.endpoints import endpoint_services
from bedplate.plan.interfaces import addresses_per_node
from bedplate.plan.member import FIXED_PREFIX
from bedplate.plan.pool import PoolPlan
from bedplate.plan.space import block_size
from bedplate.plan.zones import NODES_BITS, REGION_NARROWEST, REGION_WIDEST
from bedplate.spec.group import Group
from bedplate.spec.storage import EfsStore

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
