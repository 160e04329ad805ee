"""The order of stacks: what AWS refuses to delete while `links` uses it goes after `links`."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.stacks import parts, stack_order
from tests.testlab.fleets.sketch import LANS, laptops, sketch

WEST, EAST, NORTH = "us-west-2", "us-east-1", "eu-north-1"
ZONES = {WEST: [f"{WEST}a"], EAST: [f"{EAST}a"], NORTH: [f"{NORTH}a"]}


def plan(*regions: str, site: bool = False, interconnect: str = "transit", gateway: str = "") -> FleetPlan:
    """Return the plan of a fleet in these regions; the first is the home region."""
    kind = "site" if gateway in LANS else "region"
    vpn = {"vpn": laptops({kind: gateway})} if gateway else {}
    zones = {name: ZONES[name] for name in regions}
    fleet = sketch(zones, sites=LANS if site else {}, network={"interconnect": interconnect}, **vpn)
    return plan_fleet(fleet, Record({}), load_catalog())


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        (None, plan(WEST), f"up shared; up {WEST}"),
        (None, plan(WEST, EAST), f"up shared; up {WEST} {EAST}; up links"),
        (plan(WEST, EAST, NORTH), None, f"destroy links; destroy {EAST} {NORTH}; destroy {WEST}; destroy shared"),
        (plan(WEST), None, f"destroy {WEST}; destroy shared"),
        # Added: the stacks that are read come first.
        (plan(WEST), plan(WEST, EAST), f"up shared; up {WEST} {EAST}; up links"),
        # Removed: the region goes after `links`, and `shared` last.
        (
            plan(WEST, EAST, NORTH),
            plan(WEST, EAST),
            f"up {WEST} {EAST}; up links; destroy {NORTH}; up shared",
        ),
        (plan(WEST, EAST), plan(WEST), f"destroy links; up {WEST}; destroy {EAST}; up shared"),
        (plan(WEST, EAST), plan(WEST, NORTH), f"up shared; up {WEST} {NORTH}; up links; destroy {EAST}"),
        (plan(WEST, site=True), plan(WEST), f"destroy links; up shared; up {WEST}"),
        # Another interconnect: links release the transit gateways first, and need them last.
        (plan(WEST, EAST), plan(WEST, EAST, interconnect="none"), f"up links; up shared; up {WEST} {EAST}"),
        (plan(WEST, EAST, interconnect="peering"), plan(WEST, EAST), f"up shared; up {WEST} {EAST}; up links"),
        (
            plan(WEST, EAST, site=True, gateway="cellar"),
            plan(WEST, EAST, site=True, gateway="cellar", interconnect="none"),
            f"up links; up shared; up {WEST} {EAST}",
        ),
        (
            plan(WEST, EAST),
            plan(WEST, EAST, interconnect="none", gateway=WEST),
            f"destroy links; up shared; up {WEST} {EAST}; up links",
        ),
    ],
)
def test_the_order_of_stacks(before: FleetPlan | None, after: FleetPlan | None, order: str) -> None:
    """Creation, teardown, and each kind of change."""
    assert "; ".join(" ".join((step.action, *step.parts)) for step in stack_order(before, after)) == order


def test_parts_are_in_order_of_deployment() -> None:
    """A fleet of one region without sites has no stack `links`."""
    assert parts(plan(WEST, EAST)) == ("shared", WEST, EAST, "links")
    assert parts(plan(WEST, site=True)) == ("shared", WEST, "links")
    assert parts(plan(WEST)) == ("shared", WEST)
