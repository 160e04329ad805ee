"""From the path of a fleet file to its plan, as every command that acts on a fleet begins."""

from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.cli.output import tell
from bedplate.load import FleetFaults, Loaded, load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.plan import FleetPlan, plan_fleet
from bedplate.report.faults import fault_lines


def opened(path: Path) -> Loaded:
    """Return the fleet that the file declares, every fault of it told on stderr.

    Raises FleetFaults when one of them is an error.
    """
    try:
        loaded = load_fleet(path, load_catalog())
    except FleetFaults as error:
        tell(fault_lines(error.faults))
        raise
    tell(fault_lines(loaded.faults))
    return loaded


def planned(loaded: Loaded) -> FleetPlan:
    """Return the fleet's plan beside what its lock holds."""
    record = read_lock(lock_path(loaded.path), loaded.fleet.name)
    return plan_fleet(loaded.fleet, record, load_catalog())


def replanned(changed: Loaded, plan: FleetPlan) -> FleetPlan:
    """Return the plan of a later fleet file, as if the plan had been recorded before."""
    return plan_fleet(changed.fleet, plan.recorded(), load_catalog())
