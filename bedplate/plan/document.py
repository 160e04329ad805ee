"""The document of `plan --json`, a stable interface for other tools; and the fleet file key of a stack's resource."""

from collections.abc import Callable, Iterator
from typing import Any

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan
from bedplate.plan.stacks import stack_name


def plan_document(plan: FleetPlan) -> dict[str, Any]:
    """Return blocks by path, addresses by machine, pools, and ids of people and groups, as JSON types."""
    return {
        "blocks": {path: str(block) for path, block in plan.blocks.items()},
        "addresses": {name: str(address) for name, address in plan.addresses.items()},
        "pools": [_pool(plan, pool) for pool in plan.pools],
        "people": dict(plan.accounts.uids),
        "groups": dict(plan.accounts.groups),
    }


def _pool(plan: FleetPlan, pool: PoolPlan) -> dict[str, Any]:
    return {
        "group": pool.group,
        "region": pool.region,
        "zones": list(pool.zones),
        "market": pool.market.value,
        "types": list(pool.types),
        "min": pool.min,
        "max": pool.max,
        "stack": stack_name(plan, pool.region),
        "name": pool.name,
    }


# Returns the fleet file key for a stack and the name of a resource in it; empty without a fleet file.
Origin = Callable[[str, str], str]


def unknown_origin(stack: str, name: str) -> str:  # noqa: ARG001  # the form of Origin
    """Return an empty key, for resources without a fleet file."""
    return ""


def origin(plan: FleetPlan, stack: str, name: str, *earlier: FleetPlan) -> str:
    """Return the fleet file key of a stack's resource, from the longest prefix of its name that is known.

    Without such a prefix it is the key of the stack's region, else `name`. `earlier` plans supply the names of removed
    resources.
    """
    suffix = name.removeprefix(f"{plan.name}-")
    pairs = (pair for known_plan in (*earlier, plan) for pair in _keys_by_prefix(known_plan))
    matches = {prefix: key for prefix, key in pairs if suffix == prefix or suffix.startswith(f"{prefix}-")}
    if matches:
        return matches[max(matches, key=len)]
    part = stack.removeprefix(f"{plan.name}.")
    return f"regions.{part}" if part in plan.regions_by_name else "name"


def _keys_by_prefix(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    for region in plan.regions:
        yield region.name, f"regions.{region.name}"
        yield from ((zone.name, f"regions.{region.name}.zones") for zone in region.zones)
    yield from ((site.name, f"sites.{site.name}") for site in plan.sites)
    stores = (*(files.store for files in plan.files), *(bucket.store for bucket in plan.buckets))
    yield from ((store, f"storage.{store}") for store in stores)
    if plan.control_plane:
        yield "control", "kubernetes.control_plane"
    yield from ((pool.name, f"groups.{pool.group}.ladder.{pool.rung}") for pool in plan.pools)
