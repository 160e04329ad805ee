"""The names of stacks: `<fleet>.<part>`, where a part is `shared`, a region's name or `links`."""

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan

SHARED = "shared"
LINKS = "links"


def parts(plan: FleetPlan) -> tuple[str, ...]:
    """Return the parts of a fleet in the order in which they are made."""
    return (SHARED, *(region.name for region in plan.regions), LINKS)


def stack_name(plan: FleetPlan, part: str) -> str:
    """Return the name of the stack that holds a part."""
    return f"{plan.name}.{part}"


def part_of(plan: FleetPlan, stack: str) -> str:
    """Return the part that a stack of the fleet holds; raises InputError when the fleet has no such stack."""
    names = {stack_name(plan, part): part for part in parts(plan)}
    if stack not in names:
        raise InputError(
            f"{stack} is no stack of the fleet {plan.name}",
            fix=f"select one of {', '.join(names)}",
        )
    return names[stack]
