"""The machines of a fleet file by name, for plain pyinfra: read once a process, never written."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.plan import plan_fleet
from bedplate.plan.node import NodePlan
from bedplate.plan.nodes import standing_nodes


@cache
def machines(file: Path) -> Mapping[str, NodePlan]:
    """Return the machines that always stand. Raises FleetFaults for a wrong file."""
    catalog = load_catalog()
    fleet = load_fleet(file, catalog).fleet
    plan = plan_fleet(fleet, read_lock(lock_path(file), fleet.name), catalog)
    return {node.name: node for node in standing_nodes(plan)}
