"""What gateways of the fleet call themselves to each other at the ends of a tunnel, and in their certificates."""

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import GATEWAY, SITE_END


def identity_of(plan: FleetPlan, place: str) -> str:
    """Return the name of the gateway of a region or site: no machine's of a site, whatever it is called there."""
    word = GATEWAY if place in {region.name for region in plan.regions} else SITE_END
    return f"{word}.{place}.{plan.domain}"
