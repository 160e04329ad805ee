"""What a plan has and its lock lacks: nothing real is made of it, for the next plan might give other blocks and ids."""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from bedplate.errors import InputError
from bedplate.lock.file import lock_path
from bedplate.plan.fleet import FleetPlan

# Of a file that has no lock yet, all is missing: the plan lists it.
_TOLD = 8


def refuse_unrecorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError where a node would get a block, an address, a user's or a group's id that the lock lacks."""
    refuse_names((*plan.news, *plan.new_addresses, *plan.new_people, *plan.new_groups), fleet_file)


def refuse_names(names: Iterable[str], fleet_file: Path) -> None:
    """Raise InputError that names the first of these, where there are any, and says how they are recorded."""
    missing = tuple(names)
    if missing:
        more = (f"and {len(missing) - _TOLD} more",) if len(missing) > _TOLD else ()
        raise InputError(
            f"not recorded in {lock_path(fleet_file).name}: {', '.join((*missing[:_TOLD], *more))}",
            where=str(fleet_file),
            fix=f"run `bedplate plan --write {quote(str(fleet_file))}` first, and commit the lock",
        )
