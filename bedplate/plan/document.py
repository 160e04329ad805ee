"""The plan as a program reads it: the document of `plan --json`, whose shape is promised to other tools."""

from typing import Any

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.names import stack_name
from bedplate.plan.pool import PoolPlan


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
