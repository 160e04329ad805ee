"""The pools of a fleet that is not yet known to be right."""

from collections.abc import Mapping

from bedplate.checks.evidence import Evidence
from bedplate.plan.pool import PoolPlan
from bedplate.plan.pools import group_pools


def planned_pools(evidence: Evidence) -> Mapping[str, tuple[PoolPlan, ...]]:
    """Return the pools of each group whose rungs all lie in regions of the fleet; of the others none can be planned."""
    fleet = evidence.fleet
    return {
        name: tuple(group_pools(name, group, fleet, evidence.catalog))
        for name, group in fleet.groups.items()
        if all(rung.region in fleet.regions for rung in group.ladder)
    }
