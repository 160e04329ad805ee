"""The machines of a fleet file by name, for plain pyinfra: read once a process, never written."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock, refuse_unrecorded
from bedplate.plan import plan_fleet
from bedplate.plan.node import NodePlan
from bedplate.plan.nodes import standing_nodes


@cache
def machines(file: Path) -> Mapping[str, NodePlan]:
    """Return the machines that always stand; raises FleetFaults, or InputError for what the lock does not hold yet."""
    catalog = load_catalog()
    loaded = load_fleet(file, catalog)
    record = read_lock(lock_path(file), loaded.fleet.name)
    plan = loaded.judge(plan_fleet(loaded.fleet, record, catalog), catalog)
    refuse_unrecorded(plan, file)
    return {node.name: node for node in standing_nodes(plan)}
