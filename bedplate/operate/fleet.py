"""From a fleet file to its plan: the first step of every workflow that acts on a fleet."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bedplate.catalog import load_catalog
from bedplate.load import Loaded, load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.operate import Operator
from bedplate.plan import FleetPlan
from bedplate.plan.registration import devices
from bedplate.plan.stacks import Origin, origin
from bedplate.report.diagnostics import fault_lines, tally

if TYPE_CHECKING:
    from bedplate.account.client import AwsClient


def open_fleet(operator: Operator, *, brief: bool = True) -> Loaded:
    """Return the fleet that the operator's file declares. Raises FleetFaults for errors in the file.

    Its warnings are reported; with `brief`, only their number, for a command that they do not concern.
    """
    loaded = load_fleet(operator.fleet, load_catalog())
    if brief and loaded.faults:
        operator.notify([f"{tally(loaded.faults)} in {operator.fleet}: `bedplate check` shows them"])
    else:
        operator.notify(fault_lines(loaded.faults))
    return loaded


def plan_loaded(loaded: Loaded) -> FleetPlan:
    """Return the plan of the fleet and its lock. Raises FleetFaults if they contradict each other."""
    return loaded.plan(read_lock(lock_path(loaded.path), loaded.fleet.name), load_catalog())


def plan_of(operator: Operator, *, brief: bool = True) -> FleetPlan:
    """Return the plan of the operator's fleet file and its lock. Raises FleetFaults for errors in either."""
    return plan_loaded(open_fleet(operator, brief=brief))


def open_account(plan: FleetPlan) -> "AwsClient":
    """Return the client of the fleet's AWS account. Raises InputError for credentials of another account."""
    # Slow: it imports boto3.
    from bedplate.account.client import check_account, open_client

    client = open_client()
    check_account(client, plan.account, plan.home.name)
    return client


def replanned(changed: Loaded, plan: FleetPlan) -> FleetPlan:
    """Return the plan of a changed fleet file, as if `plan` were recorded in the lock."""
    return changed.plan(plan.recorded(), load_catalog())


def resource_origin(loaded: Loaded, plan: FleetPlan) -> Origin:
    """Return the function that finds the line of the fleet file for a resource of a stack."""
    return lambda stack, name: loaded.reading.where(origin(plan, stack, name))


def device_counts() -> Mapping[str, Mapping[str, int]]:
    """Return the GPUs and other devices of each instance type, by Kubernetes resource name, as `audit` takes them."""
    return {name: devices(facts) for name, facts in load_catalog().types.items()}
