"""What gateways of the fleet call themselves to each other at the ends of a tunnel, and in their certificates."""

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import GATEWAY

_SITE = "tunnels"


def identity_of(plan: FleetPlan, place: str) -> str:
    """Return the name of the gateway of a region or site: no machine's of a site, whatever it is called there."""
    word = GATEWAY if place in {region.name for region in plan.regions} else _SITE
    return f"{word}.{place}.{plan.domain}"
