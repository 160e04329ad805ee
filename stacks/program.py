"""The one program of the project: it runs the part that its stack's name asks for."""

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from stacks.links import declare_links
from stacks.names import LINKS, SHARED, parts
from stacks.region import declare_region
from stacks.shared import declare_shared

__all__ = ["declare", "parts"]


def declare(plan: FleetPlan, part: str) -> None:
    """Declare the resources of one part: `shared`, a region's name, or `links`.

    Raises InputError, naming the parts, when the fleet has no such part.
    """
    if part not in parts(plan):
        raise InputError(f"{part} is no part of the fleet {plan.name}", fix=f"name one of {', '.join(parts(plan))}")
    if part == SHARED:
        declare_shared(plan)
    elif part == LINKS:
        declare_links(plan)
    else:
        declare_region(plan, plan.region(part))
