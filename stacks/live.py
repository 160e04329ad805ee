"""The plan that a live deployment may act on: only blocks and ids that fleet.lock holds, only a stack of this fleet."""

from dataclasses import dataclass
from pathlib import Path

from bedplate.catalog import Catalog, load_catalog
from bedplate.errors import InputError
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock, refuse_names
from bedplate.plan import FleetPlan, plan_fleet
from bedplate.plan.images import indispensable_images
from stacks.names import part_of


@dataclass(frozen=True, slots=True)
class Order:
    """What a live run has to do: one part of a plan."""

    plan: FleetPlan
    part: str


def order(fleet_file: Path, stack: str) -> Order:
    """Return the part of the fleet that a stack's name asks for.

    Raises InputError for a faulty fleet file, a foreign stack, or a plan or an image that the lock does not hold.
    """
    catalog = load_catalog()
    # A group that has expired must not block the stacks of other regions.
    loaded = load_fleet(fleet_file, catalog, part=stack.partition(".")[2])
    record = read_lock(lock_path(fleet_file), loaded.fleet.name)
    plan = loaded.judge(plan_fleet(loaded.fleet, record, catalog), catalog)
    refuse_unrecorded(plan, fleet_file)
    refuse_unpinned(plan, catalog, fleet_file)
    return Order(plan, part_of(plan, stack))


def refuse_unrecorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError when the plan has what its lock lacks: the next run might allot other blocks, or other ids.

    Of people only administrators count, whose ids machines of the cloud learn from AWS.
    """
    admins = (person.name for person in plan.accounts.people if person.admin)
    refuse_names((*plan.news, *(name for name in admins if name in plan.new_people)), fleet_file)


def refuse_unpinned(plan: FleetPlan, catalog: Catalog, fleet_file: Path) -> None:
    """Raise InputError when a group of similar types lacks its image's id: Auto Scaling takes no parameter for it."""
    if places := indispensable_images(plan, catalog):
        raise InputError(
            f"similar types need an image in {lock_path(fleet_file).name}: {', '.join(places)}",
            where=str(fleet_file),
            fix=f"run `bedplate image record {fleet_file.name}` first, and commit the lock",
        )
