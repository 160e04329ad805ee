"""The plan as a program reads it: the document of `plan --json`, whose shape is promised to other tools."""

from collections.abc import Callable, Iterator
from typing import Any

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan, stack_name


def plan_document(plan: FleetPlan) -> dict[str, Any]:
    """Return blocks by path, addresses by machine, pools, and ids of people and groups, all as JSON's own types."""
    return {
        "blocks": {path: str(block) for path, block in plan.blocks.items()},
        "addresses": {name: str(address) for name, address in plan.addresses.items()},
        "pools": [_pool(plan.name, pool) for pool in plan.pools],
        "people": dict(plan.accounts.uids),
        "groups": dict(plan.accounts.groups),
    }


def _pool(fleet: str, pool: PoolPlan) -> dict[str, Any]:
    return {
        "group": pool.group,
        "region": pool.region,
        "zones": list(pool.zones),
        "market": pool.market.value,
        "types": list(pool.types),
        "min": pool.min,
        "max": pool.max,
        "stack": stack_name(fleet, pool.region),
        "name": pool.name,
    }


# From a stack and the name of a resource in it: where the fleet file asks for it, if a fleet file does.
Origin = Callable[[str, str], str]


def unknown_origin(stack: str, name: str) -> str:  # noqa: ARG001  # the form of Origin
    """Stand for the origin of what no fleet file asks for."""
    return ""


def origin(plan: FleetPlan, stack: str, name: str, *earlier: FleetPlan) -> str:
    """Return the key of the file that a resource of a stack comes from: the nearest that its name tells.

    Where the name tells nothing it is the key of the stack's region, and at last the fleet's own name. `earlier`
    plans know what the plan no longer has.
    """
    word = name.removeprefix(f"{plan.name}-")
    words = (pair for each in (*earlier, plan) for pair in _words(each))
    known = {thing: key for thing, key in words if word == thing or word.startswith(f"{thing}-")}
    if known:
        return known[max(known, key=len)]
    part = stack.removeprefix(f"{plan.name}.")
    return f"regions.{part}" if any(region.name == part for region in plan.regions) else "name"


def _words(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    for region in plan.regions:
        yield region.name, f"regions.{region.name}"
        yield from ((zone.name, f"regions.{region.name}.zones") for zone in region.zones)
    yield from ((site.name, f"sites.{site.name}") for site in plan.sites)
    stores = (*(files.store for files in plan.files), *(bucket.store for bucket in plan.buckets))
    yield from ((store, f"storage.{store}") for store in stores)
    if plan.control_plane:
        yield "control", "kubernetes.control_plane"
    yield from ((pool.name, f"groups.{pool.group}.ladder.{pool.rung}") for pool in plan.pools)
