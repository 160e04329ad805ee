"""The pools of a fleet: a rung of a ladder is one Auto Scaling group, or one a zone for the fabric's sake."""

from collections.abc import Iterator
from datetime import datetime

from bedplate.catalog import Catalog
from bedplate.plan.names import pool_name
from bedplate.plan.pool import Offer, PoolPlan, Tenure, Volume
from bedplate.spec import Fleet
from bedplate.spec.group import Group, Rung


def pools(fleet: Fleet, catalog: Catalog) -> tuple[PoolPlan, ...]:
    """Return the pools of all groups, in the order of the file."""
    return tuple(pool for name, group in fleet.groups.items() for pool in group_pools(name, group, fleet, catalog))


def group_pools(name: str, group: Group, fleet: Fleet, catalog: Catalog) -> Iterator[PoolPlan]:
    """Yield one group's pools, the minimum in the first; KeyError where a rung's region is not the fleet's.

    Each may hold the group's maximum, or what its reservation holds: which rung grows, and how far, is decided
    while the fleet runs, by where capacity is found. A rung with a zone and another with its region come to that
    zone's pool once, as the first of the two has it.
    """
    places: dict[str, tuple[int, Rung, tuple[str, ...]]] = {}
    for position, rung in enumerate(group.ladder):
        for place, zones in _places(group, rung, fleet.regions[rung.region].zones, catalog):
            places.setdefault(pool_name(name, rung, place), (position, rung, zones))
    for number, (pool, (position, rung, zones)) in enumerate(places.items()):
        yield PoolPlan(
            name=pool,
            group=name,
            use=group.use,
            region=rung.region,
            zones=zones,
            offer=_offer(group, rung),
            min=0 if number else group.nodes.min,
            max=min(group.nodes.max, rung.reserved or group.nodes.max),
            most=group.nodes.max,
            volume=Volume(group.disk, group.disk_throughput, group.disk_iops),
            fabric=group.fabric,
            tenure=Tenure(group.owner or fleet.owner, group.expires, group.schedule),
            labels=group.labels,
            taints=group.taints,
            rung=position,
        )


def _offer(group: Group, rung: Rung) -> Offer:
    return Offer(
        market=rung.market,
        types=group.types,
        similar=group.similar,
        reservation=rung.reservation,
        max_price=rung.max_price,
        ends=datetime.fromisoformat(rung.ends) if rung.ends else None,
    )


def _places(
    group: Group, rung: Rung, zones: tuple[str, ...], catalog: Catalog
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if rung.zone is not None:
        yield rung.zone, (rung.zone,)
        return
    offering = tuple(zone for zone in zones if _is_offered(group.types, rung.region, zone, catalog))
    if group.fabric is None:
        yield rung.region, offering
    else:
        yield from ((zone, (zone,)) for zone in offering)


def _is_offered(types: tuple[str, ...], region: str, zone: str, catalog: Catalog) -> bool:
    return any(name not in catalog.types or zone in catalog.offered(name, region) for name in types)
