"""The two questions about a fleet file: which fleet is it, and what is wrong with it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.checks.fault import Fault, Level
from bedplate.checks.image import check_images
from bedplate.checks.rules import applying, fault
from bedplate.errors import InputError
from bedplate.load.reading import Reading, read_fleet
from bedplate.plan import FleetPlan
from bedplate.plan.fault import PlanFault, PlanFaults
from bedplate.plan.planner import plan_fleet
from bedplate.plan.record import Record
from bedplate.spec import Fleet

_NO_RECORD = Record({})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A fleet that passed its checks; `faults` are warnings."""

    fleet: Fleet
    faults: tuple[Fault, ...]
    path: Path
    reading: Reading

    @property
    def rules(self) -> int:
        """How many rules of the catalogue apply to the file."""
        return applying(self.reading.nodes)

    def placed(self, refused: Iterable[PlanFault]) -> tuple[Fault, ...]:
        """Return what the plan refuses as faults of the file."""
        return _placed(self.reading, refused)

    def judge(self, plan: FleetPlan, catalog: Catalog) -> FleetPlan:
        """Return the plan; FleetFaults when it shows, beside its lock, what the file alone did not."""
        found = _late(self.reading, self.fleet, plan, catalog)
        if found:
            raise FleetFaults(found)
        return plan


class FleetFaults(InputError):
    """A fleet file with errors; nothing was done. `faults` holds its warnings too."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        errors = [told for told in self.faults if told.level is Level.ERROR]
        also = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        where = f"{first.file}:{first.line}:{first.column} {first.key}"
        super().__init__(f"{first.code} {first.message}{also}", where=where, fix=first.fix)


def load_fleet(path: Path, catalog: Catalog, part: str | None = None) -> Loaded:
    """Return the fleet of a file; FleetFaults holds all that is wrong with it.

    With a `part` of the fleet (`shared`, a region or `links`), groups that have expired in other parts are no fault.
    """
    reading = read_fleet(path, catalog)
    if part is not None:
        reading = replace(reading, faults=tuple(told for told in reading.faults if _is_about(told, reading, part)))
    if reading.fleet is None or reading.has_errors:
        raise FleetFaults(reading.faults)
    return Loaded(reading.fleet, reading.faults, path, reading)


def examine(path: Path, catalog: Catalog, record: Record = _NO_RECORD) -> tuple[Fault, ...]:
    """Return all that is wrong with a file, in its order; what the plan refuses too, once all else is right."""
    reading = read_fleet(path, catalog)
    if reading.fleet is None or reading.has_errors:
        return reading.faults
    try:
        plan = plan_fleet(reading.fleet, record, catalog)
    except PlanFaults as refusal:
        return (*reading.faults, *_placed(reading, refusal.faults))
    return (*reading.faults, *_late(reading, reading.fleet, plan, catalog))


def _is_about(told: Fault, reading: Reading, part: str) -> bool:
    """Return False for the expiry of a group that has no pool in that part of the fleet."""
    if told.code != "E329" or reading.fleet is None:
        return True
    group = reading.fleet.groups[told.key.split(".")[1]]
    return any(rung.region == part for rung in group.ladder)


def _late(reading: Reading, fleet: Fleet, plan: FleetPlan, catalog: Catalog) -> tuple[Fault, ...]:
    """Return what a plan shows to be wrong, but what the file allows; each key once, in the order of the file."""
    found = {told.key: told for told in check_images(plan, catalog) if told.code not in fleet.allow}
    return tuple(sorted(map(reading.placed, found.values()), key=lambda one: (one.line, one.column)))


def _placed(reading: Reading, refused: Iterable[PlanFault]) -> tuple[Fault, ...]:
    told = (fault(each.code, each.key, each.message, each.fix) for each in refused)
    return tuple(sorted(map(reading.placed, told), key=lambda one: (one.line, one.column)))
