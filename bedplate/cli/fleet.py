"""From the path of a fleet file to its plan, as every command that acts on a fleet begins."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.cli.output import tell
from bedplate.load import FleetFaults, Loaded, load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.plan import FleetPlan, PlanFaults, plan_fleet
from bedplate.plan.document import Origin, origin
from bedplate.report.diagnostics import fault_lines


def opened(path: Path) -> Loaded:
    """Return the fleet that the file declares, its warnings told on stderr; FleetFaults when it is wrong."""
    loaded = load_fleet(path, load_catalog())
    tell(fault_lines(loaded.faults))
    return loaded


def planned(loaded: Loaded) -> FleetPlan:
    """Return the fleet's plan beside what its lock holds; FleetFaults when the two do not agree."""
    record = read_lock(lock_path(loaded.path), loaded.fleet.name)
    with placing(loaded):
        return loaded.judge(plan_fleet(loaded.fleet, record, load_catalog()), load_catalog())


def replanned(changed: Loaded, plan: FleetPlan) -> FleetPlan:
    """Return the plan of a later fleet file, as if the plan had been recorded before."""
    with placing(changed):
        return changed.judge(plan_fleet(changed.fleet, plan.recorded(), load_catalog()), load_catalog())


def tracing(loaded: Loaded, plan: FleetPlan) -> Origin:
    """Return what tells the line of the fleet file that a resource of the plan's stacks comes from."""
    return lambda stack, name: loaded.reading.where(origin(plan, stack, name))


@contextmanager
def placing(loaded: Loaded) -> Iterator[None]:
    """Turn what the plan refuses into faults of the fleet file, each with its line."""
    try:
        yield
    except PlanFaults as refused:
        raise FleetFaults(loaded.placed(refused.faults)) from None
